"""Patch formats of the API, one file each, chosen by content type."""
