"""The suite that runs against an API server, and the clusters it runs on."""
