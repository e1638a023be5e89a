"""The demo: the real scheduler on an embedded cluster, a script of Jobs, and its verification."""
