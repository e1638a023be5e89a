"""Selectors as people write them: read with positions, corrected in their own text."""
