"""Memory that the process has freed is kept for the next cycle.

A cycle makes arrays over all nodes and drops them at its end. By default the C library returns them
to the kernel, and the next cycle gets them back page by page: at 10,000 nodes that takes as long as
placing a gang.
"""

import ctypes

KEPT = 64 * 2**20
"""Bytes of freed memory that the process keeps."""
LARGEST_KEPT = 32 * 2**20
"""The largest array that is kept; glibc allows no more."""

# The parameters of ``mallopt(3)``.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Keep freed memory from now on; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT) and mallopt(M_TRIM_THRESHOLD, KEPT))
