"""Selectors in manifests: parsed with positions, corrected in their own text."""
