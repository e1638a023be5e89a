"""Names that Kubernetes accepts, as regular expressions without anchors and limits of length.

Source: validation of apimachinery (IsDNS1123Subdomain, IsQualifiedName, IsValidLabelValue).
"""

DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""The name of a container, a device or a request; at most 63 characters."""
DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""The name of most objects, and the prefix of a label key."""
LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""The name in a label key, and a label value that is not empty."""
