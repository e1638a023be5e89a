"""Labels and annotations that users set, and how they are parsed."""

from kai_py.api.records.core import ObjectMeta


def annotation_or_label(meta: ObjectMeta, key: str) -> str:
    """An annotation, or else a label, of an object; empty where it has neither."""
    return meta.annotations.get(key) or meta.labels.get(key) or ""


def count_annotation(meta: ObjectMeta, *keys: str) -> tuple[int | None, str]:
    """The number under the first of ``keys`` that is set, and what is wrong with it."""
    for key in keys:
        text = annotation_or_label(meta, key)
        if text:
            if text.isdecimal():
                return int(text), ""
            return None, f'{key} must be a whole number of at least 0, is "{text}"'
    return None, ""
