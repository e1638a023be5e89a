"""The driver whose devices a class selects: from its selectors in the file, else from its name."""

import re

from kai_py.lint.cel.correct import domains, guarded_driver
from kai_py.lint.cel.published import DRIVER_OF_CLASS, MISTAKEN_DOMAINS
from kai_py.lint.manifest import RESOURCE_GROUP, Manifest, ManifestSet, mappings_at, text_at

_DRIVER_LIKE = re.compile(r"gpu\.[a-z0-9-]+(\.[a-z]+)+")


def driver_of_class(manifests: ManifestSet, name: str) -> str | None:
    """The driver of a DeviceClass, None if it is unknown."""
    for manifest in manifests.of(RESOURCE_GROUP, "DeviceClass"):
        if manifest.name == name:
            return driver_of_selectors(class_selectors(manifest)) or DRIVER_OF_CLASS.get(name)
    if name in DRIVER_OF_CLASS:
        return DRIVER_OF_CLASS[name]
    return name if _DRIVER_LIKE.fullmatch(name) else None


def driver_of_selectors(sources: list[str]) -> str | None:
    """The driver that selectors require, or whose names they use; None if neither."""
    guards = [driver for source in sources if (driver := guarded_driver(source))]
    used = [domain for source in sources for domain in domains(source) if "." in domain]
    drivers = [MISTAKEN_DOMAINS.get(name, name) for name in (*guards, *used)]
    return next((name for name in drivers if not name.endswith("kubernetes.io")), None)


def class_selectors(manifest: Manifest) -> list[str]:
    """The selectors of a DeviceClass."""
    found = mappings_at(manifest.value, "spec", "selectors")
    return [text_at(selector, "cel", "expression") for _, selector in found]
