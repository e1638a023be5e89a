"""Attributes and capacities that known drivers publish.

Only what corrections need: whether a name is an attribute or a capacity, which attributes are
versions, how product names begin. Selectors for a driver that is not listed here are corrected in
their form only.

Source: NVIDIA's GPU driver for DRA (full GPUs, MIG and shared GPUs), the Kubernetes example driver.
"""

from msgspec import Struct


class Published(Struct, frozen=True):
    """Names in a driver's own domain."""

    attributes: frozenset[str] = frozenset()
    capacities: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    """Attributes that hold a semantic version."""
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Attributes with few values, and these values."""
    product_prefixes: tuple[str, ...] = ()
    """Prefixes of productName; empty if any are possible."""


NVIDIA_GPU = "gpu.nvidia.com"
DEFAULT_DRIVER = NVIDIA_GPU
NOTHING = Published()
PUBLISHED = {
    NVIDIA_GPU: Published(
        attributes=frozenset(
            (
                "type",
                "uuid",
                "productName",
                "brand",
                "architecture",
                "cudaComputeCapability",
                "driverVersion",
                "cudaDriverVersion",
                "addressingMode",
                "gpuModuleID",
                "parentUUID",
                "profile",
            )
        ),
        capacities=frozenset(
            (
                "memory",
                "multiprocessors",
                "copyEngines",
                "decoders",
                "encoders",
                "jpegEngines",
                "ofaEngines",
                "shares",
            )
        )
        | {f"memorySlice{number}" for number in range(8)},
        versions=frozenset({"cudaComputeCapability", "driverVersion", "cudaDriverVersion"}),
        words=(
            ("type", ("gpu", "mig", "vfio")),
            ("architecture", ("Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell")),
        ),
        product_prefixes=("NVIDIA ", "Tesla ", "Quadro ", "GRID "),
    ),
    "gpu.example.com": Published(
        attributes=frozenset({"index", "uuid", "model", "driverVersion"}),
        capacities=frozenset({"memory", "compute"}),
        versions=frozenset({"driverVersion"}),
    ),
}
DRIVER_OF_CLASS = {
    "gpu.nvidia.com": NVIDIA_GPU,
    "mig.nvidia.com": NVIDIA_GPU,
    "vfio.gpu.nvidia.com": NVIDIA_GPU,
    "compute-domain-daemon.nvidia.com": "compute-domain.nvidia.com",
    "compute-domain-default-channel.nvidia.com": "compute-domain.nvidia.com",
}
"""DeviceClasses that drivers install, and the driver whose devices they select."""
MISTAKEN_DOMAINS = {
    "mig.nvidia.com": NVIDIA_GPU,
    "vfio.gpu.nvidia.com": NVIDIA_GPU,
    "nvidia.com": NVIDIA_GPU,
    "nvidia.com/gpu": NVIDIA_GPU,
}
"""Names of classes and resources that are no driver's domain, and the domain that is meant."""


def published(driver: str) -> Published:
    """The names that a driver is known to publish."""
    return PUBLISHED.get(driver, NOTHING)
