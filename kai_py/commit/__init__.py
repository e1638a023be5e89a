"""Carries a plan out against the API: claims first, then bindings, idempotently."""
