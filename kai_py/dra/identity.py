"""Names of devices and pools; unique in a cluster, ordered as the allocator searches them."""

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
