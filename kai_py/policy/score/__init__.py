"""Scores of nodes, by name, and the measures they are made of."""
