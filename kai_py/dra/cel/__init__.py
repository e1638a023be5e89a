"""CEL selectors with the Kubernetes DRA environment: parse, evaluate, masks over device columns."""
