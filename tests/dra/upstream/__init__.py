"""Scenarios of Kubernetes' own tests of DRA, written as objects and outcomes."""
