"""What is said of objects in files that other schedulers place."""

from collections.abc import Iterable

from kai_py.cli.output import say
from kai_py.config import Configuration
from kai_py.simulate.objects import Document
from kai_py.simulate.unusable_objects import other_schedulers


def say_other_schedulers(documents: Iterable[Document], configuration: Configuration) -> None:
    """Say which waiting pods and new workloads are left out because others schedule them."""
    own = configuration.scheduler_name, *configuration.scheduler_aliases
    if others := other_schedulers(documents, own):
        listed = ", ".join(f"{name} {count}" for name, count in others.items())
        text = f"Pods and workloads of other schedulers are left out: {listed}"
        say(f"kai-py: {text}; only those with schedulerName {own[0]} are planned", err=True)
