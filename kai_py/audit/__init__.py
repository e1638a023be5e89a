"""The auditor: searches the objects of a cluster for states that must never occur."""
