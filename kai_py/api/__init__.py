"""What users and the API server write: the Queue model, records of Kubernetes kinds, quantities."""
