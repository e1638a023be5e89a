"""resource.k8s.io: validation of taints on devices, tolerations of them, and DeviceTaintRules.

Source: k8s.io/kubernetes pkg/apis/resource/validation.
"""

from collections.abc import Iterator

from kai_py.api.selectors import is_label_key, is_label_value
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError, invalid_value, required, unsupported
from kai_py.embedded.kinds import KindRules

EFFECTS = ("NoExecute", "NoSchedule", "None")


def taint_errors(taint: Json, path: str) -> Iterator[FieldError]:
    """The errors in a taint."""
    if not is_label_key(taint.get("key") or ""):
        yield invalid_value(f"{path}.key", taint.get("key") or "", "must be a label name")
    yield from _value_errors(taint, path)
    if not taint.get("effect"):
        yield required(f"{path}.effect")
    elif taint["effect"] not in EFFECTS:
        yield unsupported(f"{path}.effect", taint["effect"], EFFECTS)


def toleration_errors(toleration: Json, path: str) -> Iterator[FieldError]:
    """The errors in a toleration that has its defaults."""
    operator, effect = toleration.get("operator"), toleration.get("effect")
    if toleration.get("key") and not is_label_key(toleration["key"]):
        yield invalid_value(f"{path}.key", toleration["key"], "must be a label name")
    if operator not in ("Equal", "Exists"):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    elif operator == "Exists" and toleration.get("value"):
        rule = "must be empty for operator `Exists`"
        yield invalid_value(f"{path}.value", toleration["value"], rule)
    else:
        yield from _value_errors(toleration, path)
    if effect and effect not in EFFECTS:
        yield unsupported(f"{path}.effect", effect, EFFECTS)


def validate_taint_rule(rule: Json) -> list[FieldError]:
    """The errors in a DeviceTaintRule."""
    spec = rule.get("spec") or {}
    return list(taint_errors(spec.get("taint") or {}, "spec.taint"))


def _value_errors(entry: Json, path: str) -> Iterator[FieldError]:
    if not is_label_value(entry.get("value") or ""):
        yield invalid_value(f"{path}.value", entry["value"], "must be a label value")


TAINT_RULE_RULES = KindRules(
    validate=validate_taint_rule, validate_update=lambda new, _old: validate_taint_rule(new)
)
