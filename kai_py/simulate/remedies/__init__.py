"""Remedies: the smallest changes that would let a pending gang start."""
