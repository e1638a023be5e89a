"""The auditor: what must never be true of a cluster, looked for in its objects."""
