"""Lint for manifests: fields that the API server rejects or drops, and their valid form."""
