"""The search cache: what was asked before, by the inputs that decided it."""
