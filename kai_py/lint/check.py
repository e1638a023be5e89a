"""Check of manifests: all rules over all objects.

The order of the rules matters: first the object itself, then the shapes that later rules look into,
the version last, since the shape shows which one was meant. Rules on one object never stop those on
another.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from kai_py.api.groups import grouped
from kai_py.api.manifests import (
    Document,
    LineMapping,
    ManifestError,
    TextTooLargeError,
    read_documents,
)
from kai_py.lint.manifest import Finding, Manifest, Rule, Severity, mappings_at, text_at
from kai_py.lint.refused import refused_fields
from kai_py.lint.rewrite import rewrite
from kai_py.lint.rules import (
    claims,
    field_types,
    fields,
    grove,
    kai_api,
    objects,
    pods,
    queues,
    references,
    requests,
    selectors,
    workloads,
)

RULES: tuple[Rule, ...] = (
    objects.identity,
    objects.shapes,
    objects.scope,
    objects.text_values,
    objects.label_texts,
    field_types.field_types,
    queues.queue,
    kai_api.kai_objects,
    claims.levels,
    claims.fields,
    selectors.shapes,
    selectors.expressions,
    selectors.guards,
    requests.requests,
    grove.pod_clique_set,
    workloads.misplaced_pod_fields,
    workloads.restart_policy,
    workloads.selector,
    workloads.gang,
    references.subgroups_exist,
    pods.pod_claims,
    pods.container_claims,
    pods.extended_resources,
    pods.amounts,
    pods.gpu_shares,
    queues.queue_keys,
    queues.queue_exists,
    queues.scheduler,
    workloads.survives_eviction,
    fields.known_fields,
    fields.misspelt_names,
    references.namespaces_exist,
    references.classes_exist,
    references.claims_exist,
    references.served_version,
)

SETTINGS_GROUPS = (".config.k8s.io", "kubeadm.k8s.io", "kind.x-k8s.io")
"""Groups of settings, such as a Kustomization or a KubeSchedulerConfiguration."""

MAX_VALUES = 100_000
"""Most values of one document.

Far more than an API server stores in one object, far less than a few lines of anchors can expand
to.
"""


MAX_ROUNDS = 5
"""Rounds of all rules at most; one after which nothing is corrected is the last."""


class LintReport(Struct, frozen=True):
    """Findings, in the order of the file, and the file's valid form."""

    findings: tuple[Finding, ...]
    corrected: str

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that the API rejects or drops."""
        return tuple(found for found in self.findings if found.severity is Severity.ERROR)

    @property
    def unfixed(self) -> tuple[Finding, ...]:
        """Errors that remain in the valid form, because only the user can decide."""
        return tuple(found for found in self.errors if not found.fixed)


def lint_together(texts: Sequence[str]) -> tuple[LintReport, ...]:
    """Check several texts whose objects may refer to each other; one report per text.

    Text that is no YAML is one finding, and its valid form is the text itself.
    """
    checked = [_read(text.removeprefix("\ufeff")) for text in texts]
    together = [manifest for part in checked for manifest in part.manifests]
    for manifest in together:
        manifest.together = together
    # What one rule corrects may show another fault of the same field, to a rule before it.
    before = [part.findings for part in checked]
    for _ in range(MAX_ROUNDS):
        if not _check_once(checked, before):
            break
    for part in checked:
        rest = _refused_besides(part.findings)
        for manifest in part.manifests:
            part.findings.extend(_found(rest, manifest))
    return tuple(part.report() for part in checked)


def _check_once(checked: Sequence["_CheckedText"], before: Sequence[list[Finding]]) -> bool:
    """Replace the findings by those of another round, which may correct more; whether it did.

    What was corrected stays a finding, as does what was found ``before`` all rounds.
    """
    known = [{each for each in part.findings if each.fixed} for part in checked]
    for part, first, fixed in zip(checked, before, known, strict=True):
        part.findings = [*first, *(each for each in part.findings if each in fixed)]
    # Each rule sees all objects before the next rule does: it may look at other objects, which
    # the rules before it have corrected.
    for rule in RULES:
        for part in checked:
            for manifest in part.manifests:
                part.findings.extend(_found(rule, manifest))
    return any(
        each.fixed and each not in fixed
        for part, fixed in zip(checked, known, strict=True)
        for each in part.findings
    )


def _refused_besides(findings: Iterable[Finding]) -> Rule:
    """The rule that an API server refuses nothing else of an object than ``findings`` say."""
    named = grouped(findings, lambda each: each.subject)
    return lambda manifest: refused_fields(manifest, named.get(manifest.subject, ()))


def _found(rule: Rule, manifest: Manifest) -> Iterator[Finding]:
    """What a rule finds; that it cannot read an object is a finding."""
    try:
        yield from rule(manifest)
    except Exception as error:
        text = f"is not checked in full: a value is of another type than the API's ({error})"
        yield manifest.error((), text)


class _CheckedText(Struct):
    """One text while it is checked."""

    text: str
    documents: list[Document]
    manifests: list[Manifest]
    findings: list[Finding]

    def report(self) -> LintReport:
        corrected = rewrite(self.text, [document.value for document in self.documents])
        unique = dict.fromkeys(self.findings)
        return LintReport(tuple(sorted(unique, key=lambda found: found.line)), corrected)


def _read(text: str) -> _CheckedText:
    try:
        documents = read_documents(text)
        _refuse_oversized(documents)
    except TextTooLargeError as error:
        return _CheckedText(text, [], [], [Finding(error.line, "", "", error.reason)])
    except ManifestError as error:
        finding = Finding(error.line, "", "", f"is not YAML: {error.reason}")
        return _CheckedText(text, [], [], [finding])
    findings = [finding for document in documents for finding in _document(document)]
    manifests = [manifest for each in documents for manifest in _manifests(each.value)]
    return _CheckedText(text, documents, manifests, findings)


def _refuse_oversized(documents: list[Document]) -> None:
    for document in documents:
        if document.values > MAX_VALUES:
            reason = f"expands to more than {MAX_VALUES} values: no object is that large"
            raise ManifestError(document.node.start_mark.line + 1, reason)


def _document(document: Document) -> Iterator[Finding]:
    line = document.node.start_mark.line + 1
    if not isinstance(document.value, LineMapping):
        yield Finding(
            line, "", "", "is not an object of the API: a mapping with apiVersion and kind"
        )
    for repeated, key in document.repeated_keys:
        yield Finding(repeated, "", key, "is set twice in one mapping: the first one is lost")


def _manifests(value: Any) -> Iterator[Manifest]:
    """The object of a document, or those in it if it is a List, or a list of one kind.

    Settings of programs, which no API server stores, are no objects. Items of lists of one kind may
    leave out their kind; these are not checked.
    """
    if not isinstance(value, LineMapping):
        return
    manifest = Manifest(value)
    is_list = manifest.kind == "List"
    if is_list or (manifest.kind.endswith("List") and not manifest.name and "items" in value):
        for _, item in mappings_at(value, "items"):
            if is_list or text_at(item, "kind"):
                yield from _manifests(item)
    elif not manifest.group.endswith(SETTINGS_GROUPS):
        yield manifest
