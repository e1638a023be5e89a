"""Repairs of what other programs break: each pass looks for states that must not last."""
