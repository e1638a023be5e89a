"""Placement of a gang: which nodes its pods fit on, and which they take."""
