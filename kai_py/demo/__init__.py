"""The demo: the real scheduler on an embedded cluster, a script of Jobs, and what must be seen."""
