"""Controllers of frameworks, at fixed versions, on the real control plane.

They make the pods that the scheduler has to group, and their modules have the definitions of their
kinds and their samples. Nothing of them is copied into the project.
"""
