"""Lint rules, one file per subject; each rule reports and corrects one object."""
