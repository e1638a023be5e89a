"""Fields of a pod spec that decide where the pod may run: validation.

Source: k8s.io/kubernetes pkg/apis/core/validation (``ValidatePodSpec``); operators of tolerations
that only some versions know are accepted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    repeated,
    required,
    unsupported,
)
from kai_py.embedded.kinds.amounts import CONTAINER_LISTS

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ONE_VALUE = "must be specified single value when `operator` is 'Lt' or 'Gt'"
_SOME_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ANY_KEY = (
    'operator must be Exists when `key` is empty, which means "match all values and all keys"'
)


def scheduling_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """The errors of the fields in a pod spec that its scheduler reads."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    yield from _claim_errors(spec, path)
    yield from _gate_errors(spec, path)
    for index, each in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_errors(each, f"{path}.tolerations[{index}]")
    affinity, at = spec.get("affinity") or {}, f"{path}.affinity"
    yield from _node_affinity_errors(affinity.get("nodeAffinity") or {}, f"{at}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity_errors(affinity.get(kind) or {}, f"{at}.{kind}")
    yield from _spread_errors(spec, f"{path}.topologySpreadConstraints")
    policy = spec.get("preemptionPolicy")
    if policy not in (None, "Never", "PreemptLowerPriority"):
        allowed = ("Never", "PreemptLowerPriority")
        yield unsupported(f"{path}.preemptionPolicy", policy, allowed)


def _claim_errors(spec: Json, path: str) -> Iterator[FieldError]:
    claims = spec.get("resourceClaims") or ()
    for index, claim in enumerate(claims):
        claim_path = f"{path}.resourceClaims[{index}]"
        if not claim.get("name"):
            yield required(f"{claim_path}.name")
        sources = [
            key
            for key in ("resourceClaimName", "resourceClaimTemplateName")
            if claim.get(key) is not None
        ]
        if len(sources) != 1:
            rule = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid_value(claim_path, claim, rule)
    names = [each.get("name") for each in claims]
    yield from repeated(names, path + ".resourceClaims[{}].name")
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            uses = (container.get("resources") or {}).get("claims") or ()
            for position, use in enumerate(uses):
                if use.get("name") not in names:
                    at = f"{path}.{field}[{index}].resources.claims[{position}]"
                    rule = "must be one of the names in pod.spec.resourceClaims"
                    yield invalid_value(at, use.get("name"), rule)


def _gate_errors(spec: Json, path: str) -> Iterator[FieldError]:
    gates = spec.get("schedulingGates") or ()
    yield from repeated((each.get("name") for each in gates), path + ".schedulingGates[{}].name")
    if gates and spec.get("nodeName"):
        rule = "cannot be set until all schedulingGates have been cleared"
        yield forbidden_field(f"{path}.nodeName", rule)


def _toleration_errors(toleration: Json, path: str) -> Iterator[FieldError]:
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    elif not key and operator != "Exists":
        yield invalid_value(f"{path}.operator", operator, _ANY_KEY)
    elif operator == "Exists" and toleration.get("value"):
        rule = "value must be empty when `operator` is 'Exists'"
        yield invalid_value(f"{path}.operator", toleration["value"], rule)
    effect = toleration.get("effect") or ""
    if effect and effect not in EFFECTS:
        yield unsupported(f"{path}.effect", effect, EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        rule = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid_value(f"{path}.effect", effect, rule)


def _node_affinity_errors(affinity: Json, path: str) -> Iterator[FieldError]:
    selector = affinity.get(_REQUIRED)
    if selector is not None:
        at, terms = f"{path}.{_REQUIRED}.nodeSelectorTerms", selector.get("nodeSelectorTerms") or ()
        if not terms:
            yield required(at, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _term_errors(term, f"{at}[{index}]")
    for index, each in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight_errors(each, at)
        yield from _term_errors(each.get("preference") or {}, f"{at}.preference")


def _term_errors(term: Json, path: str) -> Iterator[FieldError]:
    for field in ("matchExpressions", "matchFields"):
        for index, each in enumerate(term.get(field) or ()):
            yield from _requirement_errors(each, f"{path}.{field}[{index}]", numbers=True)


def _requirement_errors(
    requirement: Json, path: str, *, numbers: bool = False
) -> Iterator[FieldError]:
    """``numbers``: whether Gt and Lt exist, as for nodes."""
    operator, values = requirement.get("operator"), requirement.get("values") or ()
    if not requirement.get("key"):
        yield required(f"{path}.key")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", _SOME_VALUES)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_field(f"{path}.values", _NO_VALUES)
    elif numbers and operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", _ONE_VALUE)
    else:
        yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")


def _pod_affinity_errors(affinity: Json, path: str) -> Iterator[FieldError]:
    terms = [
        (each, f"{path}.{_REQUIRED}[{index}]")
        for index, each in enumerate(affinity.get(_REQUIRED) or ())
    ]
    for index, each in enumerate(affinity.get(_PREFERRED) or ()):
        at = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight_errors(each, at)
        terms.append((each.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm"))
    for term, at in terms:
        if not term.get("topologyKey"):
            yield required(f"{at}.topologyKey", "can not be empty")
        for selector in ("labelSelector", "namespaceSelector"):
            yield from _label_selector_errors(term.get(selector), f"{at}.{selector}")


def _label_selector_errors(selector: Json | None, path: str) -> Iterator[FieldError]:
    for index, each in enumerate((selector or {}).get("matchExpressions") or ()):
        yield from _requirement_errors(each, f"{path}.matchExpressions[{index}]")


def _weight_errors(preferred: Mapping[str, int], path: str) -> Iterator[FieldError]:
    weight = preferred.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _spread_errors(spec: Json, path: str) -> Iterator[FieldError]:
    constraints = spec.get("topologySpreadConstraints") or ()
    for index, each in enumerate(constraints):
        at, when = f"{path}[{index}]", each.get("whenUnsatisfiable")
        skew, domains = each.get("maxSkew") or 0, each.get("minDomains")
        if skew <= 0:
            yield invalid_value(f"{at}.maxSkew", skew, "must be greater than zero")
        if not each.get("topologyKey"):
            yield required(f"{at}.topologyKey", "can not be empty")
        if when not in ("DoNotSchedule", "ScheduleAnyway"):
            allowed = ("DoNotSchedule", "ScheduleAnyway")
            yield unsupported(f"{at}.whenUnsatisfiable", when, allowed)
        if domains is not None and domains <= 0:
            yield invalid_value(f"{at}.minDomains", domains, "must be greater than 0")
        yield from _label_selector_errors(each.get("labelSelector"), f"{at}.labelSelector")
    pairs = [
        f"{{{each.get('topologyKey')}, {each.get('whenUnsatisfiable')}}}" for each in constraints
    ]
    following = Counter(pairs)
    for index, pair in enumerate(pairs):
        following[pair] -= 1
        if following[pair] > 0:
            yield duplicate(f"{path}[{index}].{{topologyKey, whenUnsatisfiable}}", pair)
