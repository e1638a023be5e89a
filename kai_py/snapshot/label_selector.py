"""metav1.LabelSelector over one set of labels (apimachinery's labels package)."""

from collections.abc import Mapping

from kai_py.api.records.core import LabelSelector, SelectorRequirement


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` match; an empty selector matches everything, None matches nothing."""
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(
        requirement_matches(each, labels.get(each.key)) for each in selector.match_expressions
    )


def requirement_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    """Whether the value of the requirement's key, None if it is missing, is as required."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
