"""Errors that stop the allocation of a whole pod, as opposed to a node that does not fit."""


class AllocationError(Exception):
    """A claim, class or device that can't be evaluated; the text is that of kube-scheduler.

    ``kai_py.dra.allocator.allocate`` does not raise this: it returns it as a value.
    """
