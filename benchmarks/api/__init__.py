"""End to end: pods through a real API server, beside kube-scheduler on the same server."""
