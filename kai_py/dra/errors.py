"""What stops the allocation of a whole pod, as opposed to a node that merely does not fit."""


class AllocationError(Exception):
    """A claim, class or device that cannot be judged; the text names it and is upstream's.

    ``kai_py.dra.allocator`` raises this nowhere: it returns it as a value.
    """
