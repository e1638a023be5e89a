"""Says which work in files is left out because other schedulers place it."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from kai_py.api.pod_phases import FINISHED_PHASES
from kai_py.api.records.core import PodSpec
from kai_py.api.records.unstructured import value_at
from kai_py.cli.output import say
from kai_py.config import Configuration
from kai_py.simulate.files.manifest_pods import WORKLOADS
from kai_py.simulate.files.objects import Document


def say_other_schedulers(documents: Iterable[Document], configuration: Configuration) -> None:
    """Say which waiting pods and new workloads are left out because others schedule them."""
    own = configuration.scheduler_name, *configuration.scheduler_aliases
    if others := other_schedulers(documents, own):
        listed = ", ".join(f"{name} {count}" for name, count in others.items())
        text = f"Pods and workloads of other schedulers are left out: {listed}"
        say(f"kai-py: {text}; only those with schedulerName {own[0]} are planned", err=True)


def other_schedulers(
    documents: Iterable[Document], scheduler_names: Container[str]
) -> Mapping[str, int]:
    """How many waiting pods and new workloads of Kubernetes' own kinds other schedulers have."""
    found: Counter[str] = Counter()
    for document in documents:
        kind = (document["apiVersion"].rpartition("/")[0], document["kind"])
        if kind == ("", "Pod"):
            spec = document.get("spec") if _waits(document) else None
        else:
            is_new = kind in WORKLOADS and not document["metadata"].get("uid")
            spec = value_at(document, "spec.template.spec") if is_new else None
        if isinstance(spec, dict):
            found[_scheduler_of(spec)] += 1
    return {name: count for name, count in sorted(found.items()) if name not in scheduler_names}


def _scheduler_of(spec: Document) -> str:
    return str(spec.get("schedulerName") or PodSpec().scheduler_name)


def _waits(pod: Document) -> bool:
    """Whether a pod has a spec, no node, and has not ended."""
    spec = pod.get("spec")
    has_ended = value_at(pod, "status.phase") in FINISHED_PHASES
    return isinstance(spec, dict) and not spec.get("nodeName") and not has_ended
