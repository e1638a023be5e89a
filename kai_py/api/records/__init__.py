"""Typed records of the Kubernetes kinds we watch: only the fields that a policy reads."""
