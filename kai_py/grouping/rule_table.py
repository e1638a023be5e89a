"""The table of grouping rules by kind of owner, with the fields that each rule reads.

The shipped files (``rules/*.yaml``) are read once. An operator's rules take precedence, so a
shipped rule can be replaced. Of several rules for a kind the first that applies counts.
"""

from collections.abc import Iterable
from functools import cache
from importlib import resources

from pydantic import ValidationError

from kai_py.api.manifests import ManifestError, line_at, read_documents
from kai_py.api.problems import field_problems
from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.failure_limits import failure_limit_paths
from kai_py.grouping.frameworks import FRAMEWORKS
from kai_py.grouping.gang_template import annotation_or_label
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.queue_choice import Defaults, QueueKey
from kai_py.grouping.rule import Count, Rule, RuleFile, Treatment


class RuleError(ValueError):
    """Rules are invalid; one line per problem."""


class RuleTable:
    """Rules by kind of owner."""

    def __init__(self, *files: RuleFile) -> None:
        """Build the table; earlier files go first. Raises RuleError for unknown frameworks."""
        self._rules: dict[GroupKind, list[Rule]] = {}
        keys = [QueueKey(each.key, each.defaults) for file in files for each in file.queue_keys]
        self.queue_keys = tuple(dict.fromkeys(keys))
        for rule in (rule for file in files for rule in file.rules):
            if rule.framework and rule.framework not in FRAMEWORKS:
                known = ", ".join(FRAMEWORKS)
                raise RuleError(f'no such framework "{rule.framework}"; known are {known}')
            for kind in _kinds(rule):
                self._rules.setdefault(kind, []).append(rule)

    def rule(self, kind: GroupKind, owner: ObjectMeta, defaults: Defaults) -> Rule | None:
        """The first rule that applies to an owner of ``kind``, None if there is none."""
        for rule in self._rules.get(kind, ()):
            if rule.defaults not in (None, defaults):
                continue
            if not rule.only_annotated or annotation_or_label(owner, rule.only_annotated):
                return rule
        return None

    def kinds(self) -> tuple[GroupKind, ...]:
        """Every kind that has a rule."""
        return tuple(self._rules)

    def paths(self, kind: GroupKind) -> tuple[str, ...]:
        """The fields that rules read of owners of ``kind``; none when metadata is enough."""
        paths = [path for rule in self._rules.get(kind, ()) for path in _paths(rule)]
        return tuple(dict.fromkeys((*paths, *failure_limit_paths(kind))))


def read_rules(text: str, name: str) -> RuleFile:
    """Read a rule file; raises RuleError with ``name:line: key: problem`` per problem."""
    try:
        documents = read_documents(text)
    except ManifestError as error:
        raise RuleError(f"{name}:{error.line}: {error.reason}") from None
    value = documents[0].value if documents else {}
    try:
        return RuleFile.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = field_problems(error, RuleFile)
        lines = [f"{name}:{line_at(value, each.path)}: {each}" for each in problems]
        raise RuleError("\n".join(lines)) from None


@cache
def shipped_rules() -> RuleFile:
    """The rules of the package."""
    folder = resources.files("kai_py.grouping") / "rules"
    files = sorted((each for each in folder.iterdir()), key=lambda each: each.name)
    read = [
        read_rules(each.read_text(encoding="utf-8"), each.name)
        for each in files
        if each.name.endswith(".yaml")
    ]
    return RuleFile(
        queue_keys=tuple(key for file in read for key in file.queue_keys),
        rules=tuple(rule for file in read for rule in file.rules),
    )


@cache
def shipped_table() -> RuleTable:
    """The table of the shipped rules alone."""
    return RuleTable(shipped_rules())


@cache
def _shipped() -> frozenset[int]:
    return frozenset(map(id, shipped_rules().rules))


def describe_rule(rule: Rule, kind: GroupKind) -> str:
    """The rule that applies to an owner of ``kind``, as people read it."""
    subject = f"{kind.kind} ({kind.group})" if kind.group else kind.kind
    if not rule.owners:
        return f"topmost owner {subject}, which has no rule"
    configured = "" if id(rule) in _shipped() else " in grouping.rules"
    each_pod = ", each pod by itself" if rule.treatment is Treatment.PODS else ""
    return f"rule for {subject}{configured}{each_pod}"


def _kinds(rule: Rule) -> Iterable[GroupKind]:
    return (GroupKind(each.group, kind) for each in rule.owners for kind in each.kinds)


def _paths(rule: Rule) -> Iterable[str]:
    for count in (rule.floor, rule.expected, *(leaf.floor for leaf in rule.leaves)):
        yield from _count_paths(count)
    yield from (f"{path}.replicas" for path in rule.requires)
    yield from rule.queue
    if rule.only_with:
        yield rule.only_with
    if rule.roles is not None:
        fields = (rule.roles.name, rule.roles.count, "template.metadata.annotations")
        yield from (f"{rule.roles.each}.*.{field}" for field in fields if field)
    if rule.framework:
        yield from FRAMEWORKS[rule.framework].field_paths


def _count_paths(count: Count) -> Iterable[str]:
    yield from count.first
    yield from (f"{each.each}.{each.field}" for each in count.sum)
