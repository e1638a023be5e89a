"""The API: the Queue model, records of Kubernetes kinds, quantities and other field types."""
