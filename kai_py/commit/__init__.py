"""Execution of plans against the API: claims first, then bindings, each step idempotent."""
