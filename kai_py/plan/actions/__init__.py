"""The actions of a cycle; each reads as its algorithm."""
