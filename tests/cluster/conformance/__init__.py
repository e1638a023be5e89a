"""What a client may rely on, asked the same way of every kind of cluster.

The embedded cluster must not drift from a real API server: what passes here on one must pass on
the other.
"""
