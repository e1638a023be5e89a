"""KAI-Scheduler's API for clusters without KAI: definitions, priority classes, default queues.

With it KAI's manifests apply unchanged, and what talks to KAI's API (Grove, KubeRay, Dynamo) finds
it. The files beside this module are the originals. Fields are those of KAI 0.17, with what they
mean here; fields that are accepted and have no effect say so. BindRequests and the operator's
Config are not defined: pods are bound directly.

Source: KAI-Scheduler, deployments/kai-scheduler/crds and templates; docs/priority, docs/quickstart.
"""

from importlib.resources import files

import yaml

from kai_py.deploy.parts import Document


def kai_definitions() -> list[Document]:
    """The CustomResourceDefinitions of KAI's Queue, PodGroup, Topology and SchedulingShard."""
    return _documents("definitions.yaml")


def kai_defaults() -> list[Document]:
    """KAI's priority classes, and the queues of workloads that name none."""
    return _documents("defaults.yaml")


def _documents(name: str) -> list[Document]:
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))
