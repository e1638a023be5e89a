"""Names of devices and pools, and the errors that stop an allocation.

Names are unique in a cluster and ordered as the allocator searches them. The errors stop the
allocation of a whole pod, as opposed to a node that does not fit.
"""

from typing import NamedTuple


class PoolID(NamedTuple):
    """A pool of one driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """A device of one pool."""

    driver: str
    pool: str
    device: str

    @property
    def pool_id(self) -> PoolID:
        """The pool of the device."""
        return PoolID(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class AllocationError(Exception):
    """A claim, class or device that can't be evaluated; the text is that of kube-scheduler.

    ``kai_py.dra.allocator.allocate`` does not raise this: it returns it as a value.
    """

    def as_outcome(self) -> "AllocationError":
        """The error as a result that is kept: without the frames, which hold all of the cycle."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self
