"""A mirror of the cluster, kept in step with the API server by list and watch."""
