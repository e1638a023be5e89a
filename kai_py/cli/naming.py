"""Names of objects on the command line, in the forms that kubectl takes.

``job train``, ``job/train``, ``jobs train``, ``job.batch/train`` (as ``kubectl get -o name`` prints
it), ``-n ml job train`` and ``job ml/train`` name the same object; other kinds of workloads are
named in the same way. Where no namespace is named, that of the kubeconfig's context counts, as for
kubectl.
"""

import os
from collections.abc import Mapping
from typing import Annotated

import typer
import yaml

from kai_py.api.choices import Subject
from kai_py.api.problems import closest_match
from kai_py.cli.errors import CommandError
from kai_py.grouping.rule_table import shipped_table

NamespaceOption = Annotated[
    str,
    typer.Option("--namespace", "-n", help="Namespace; otherwise that of the context."),
]
SHORT_NAMES: Mapping[str, Subject] = {
    "po": Subject.POD,
    "resourceclaim": Subject.CLAIM,
    "resourceclaims": Subject.CLAIM,
    **{f"{subject.value}s": subject for subject in Subject},
}
SHORT_KINDS: Mapping[str, str] = {
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "rc": "replicationcontroller",
    "cj": "cronjob",
    "lws": "leaderworkerset",
}
GROUPS = ("podgroup", "compositepodgroup", "podgang")
"""Kinds of objects that declare a gang."""


def workload_kinds() -> frozenset[str]:
    """The kinds, in lower case, whose pods are known to the shipped rules, and those of groups."""
    ruled = {each.kind.lower() for each in shipped_table().kinds()}
    return frozenset(ruled - {"pod", "node"} | set(GROUPS))


def parse_subject(kind: str, name: str, namespace: str) -> tuple[Subject, str]:
    """What is meant by the arguments KIND and NAME, or KIND/NAME; raises BadParameter."""
    if not name:
        kind, _, name = kind.partition("/")
    singular = kind.lower().partition(".")[0]
    try:
        subject = SHORT_NAMES.get(singular) or Subject(singular)
    except ValueError:
        subject = Subject.WORKLOAD
    singular = subject.value if subject is not Subject.WORKLOAD else _workload_kind(singular)
    if not singular:
        raise typer.BadParameter(_unknown_kind(kind, name), param_hint="KIND")
    if not name:
        raise typer.BadParameter(f"name a {singular}: {singular}/NAME", param_hint="NAME")
    if subject is Subject.WORKLOAD:
        place, _, own_name = name.rpartition("/")
        return subject, f"{place or namespace}/{singular}/{own_name}"
    return subject, name if subject is Subject.QUEUE else _namespaced(subject, name, namespace)


def _workload_kind(kind: str) -> str:
    """The kind of workload that a word in lower case names, "" if none."""
    known = workload_kinds() | {Subject.WORKLOAD.value}
    named = SHORT_KINDS.get(kind, kind)
    return next((each for each in (named, named.removesuffix("s")) if each in known), "")


def _unknown_kind(kind: str, name: str) -> str:
    known = [each.value for each in Subject if each is not Subject.WORKLOAD]
    if not name:
        return f"'{kind}' has no kind: write gang/{kind}, job/{kind} or pod/{kind}."
    nearest = closest_match(kind, sorted({*known, *workload_kinds()}))
    meant = f"; did you mean {nearest}/{name}?" if nearest else ""
    return f"'{kind}' is not one of {', '.join(known)}, or a known kind of workload{meant}."


def _namespaced(subject: Subject, name: str, namespace: str) -> str:
    if subject is Subject.GANG:
        return gang_key(name, namespace)
    return name if "/" in name else f"{namespace}/{name}"


def gang_key(name: str, namespace: str) -> str:
    """NAMESPACE/KIND/NAME of a gang that may be named without its namespace."""
    kind, slash, _ = name.partition("/")
    # A kind begins with a capital letter, a namespace never does.
    has_namespace = slash and not kind[:1].isupper()
    return name if has_namespace else f"{namespace}/{name}"


def context_namespace(kubeconfig: str, context: str) -> str:
    """The namespace of the kubeconfig's context; ``default`` where none is named.

    Raises CommandError where a kubeconfig that was named can't be read.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = named or os.path.expanduser("~/.kube/config")
    try:
        with open(path, encoding="utf-8") as file:
            document = yaml.safe_load(file)
    except FileNotFoundError as error:
        if kubeconfig:
            raise CommandError(str(error)) from error
        return "default"
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        # The connection will report what is wrong with the file.
        return "default"
    return _namespace_of(document, context) or "default"


def _namespace_of(document: object, context: str) -> str:
    if not isinstance(document, dict):
        return ""
    wanted = context or document.get("current-context")
    contexts = document.get("contexts")
    for each in contexts if isinstance(contexts, list) else ():
        if isinstance(each, dict) and each.get("name") == wanted:
            details = each.get("context")
            found = details.get("namespace") if isinstance(details, dict) else None
            return found if isinstance(found, str) else ""
    return ""
