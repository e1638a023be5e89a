"""Client for the API server, and a mirror of the cluster kept up to date by list and watch."""
