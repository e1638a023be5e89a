"""The reference pages, made from the code: commands, configuration, resources, metrics.

python -m tests.docs.reference        writes docs/reference; a test fails where it differs

Tables inside other pages stand between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from kai_py.api.crd import crds
from kai_py.api.node_departures import DEFAULT_SIGNALS, DepartureStage, NodeSignal
from kai_py.api.times import DURATION_PATTERN, format_duration
from kai_py.cli import main
from kai_py.config import Configuration
from kai_py.observe.auditor import Auditor
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.metrics import Metrics
from kai_py.observe.plan_observer import KaiQueueMetrics
from kai_py.plan.placement.preferences import TIERS
from kai_py.plan.plan import Plan
from kai_py.simulate.scenarios.scenario import Scenario
from tests.support import scenario
from tests.support.repository import DOCS

MADE = "Generated from the code by `make generate`.\n"


def with_tables(name: str, page: str) -> str:
    """A page of docs/ with its generated tables as the code has them now."""
    for title, table in TABLES.get(name, {}).items():
        begin = f"<!-- generated: {title} -->\n"
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}{table()}{rest[rest.index('<!-- end -->') :]}"
    return page


def _preference_tiers() -> str:
    rows = ((str(at), f"`{t.name}`", t.meaning, t.source) for at, t in enumerate(TIERS, 1))
    return _table(("order", "preference", "prefers", "comes from"), rows)


def _node_signals() -> str:
    """One line per stage and kind of signal."""
    rows = []
    for stage in DepartureStage:
        for field in ("taint", "condition", "label"):
            found = [each for each in DEFAULT_SIGNALS if each.stage is stage]
            named = [_signal(each, field) for each in found if getattr(each, field) is not None]
            if named:
                rows.append((f"`{stage}`", field, ", ".join(named)))
    return _table(("stage", "kind", "built-in signals"), rows)


def _signal(signal: NodeSignal, field: str) -> str:
    effect = f":{signal.effect}" if signal.effect else ""
    values = f" ({', '.join(signal.values)})" if signal.values else ""
    return f"`{getattr(signal, field)}{effect}`{values}"


TABLES = {
    "placement.md": {"preference tiers": _preference_tiers},
    "nodes.md": {"node signals": _node_signals},
}
"""By page of docs/ the tables in it, by title."""


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _commands() -> str:
    parts = [f"# Commands\n\n{MADE}\n{main.EPILOG}\n"]
    for entry in sorted(main.COMMANDS):
        if entry.hidden:
            continue
        command = main.load_command(entry)
        rows = ((_usage(each), each.help or "", _default(each)) for each in _shown(command))
        parts.append(f"\n## {entry.name}\n\n{entry.help}\n\n")
        parts.append(_table(("argument or option", "meaning", "default"), rows))
    return "".join(parts)


def _shown(command: Any) -> Iterator[Any]:
    for each in command.params:
        if each.name != "help" and not getattr(each, "hidden", False):
            yield each


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    return f"`{names}`"


def _default(parameter: Any) -> str:
    default = parameter.default
    if default in (None, "", (), []) or callable(default) or isinstance(default, bool):
        return ""
    return f"`{getattr(default, 'value', default)}`"


def _configuration() -> str:
    schema = Configuration.model_json_schema(by_alias=True)
    rows = _settings(schema, schema.get("$defs", {}))
    head = (
        f"# Configuration\n\n{MADE}\nThe file of `kai-py run --config FILE`, in YAML. Durations "
        "are written like `30s`, `5m` or `1h30m`; a plain number is seconds. `[]` stands for each "
        "entry of a list.\n\n"
    )
    return head + _table(("setting", "meaning", "default"), rows)


def _scenarios() -> str:
    schema = Scenario.model_json_schema(by_alias=True)
    known = schema["$defs"]
    queue = known["ScenarioQueue"]["properties"]
    known["ScenarioQueue"] = {"properties": {"name": queue["name"]}}
    rows = _settings(schema, known)
    head = (
        f"# Scenarios\n\n{MADE}\n"
        "The file of [`kai-py simulate`](../what-if.md#simulate-a-workload), in YAML. Required are "
        "`nodes`, `queues`, names, and the queue of a job. Queues also have the fields of a "
        "[Queue's spec](resources.md).\n\n"
    )
    return head + _table(("field", "meaning", "default"), rows)


def _settings(
    schema: Mapping[str, Any], known: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, ...]]:
    for name, each in schema.get("properties", {}).items():
        target = _resolved(each, known)
        here = f"{path}{name}"
        default = each.get("default")
        if target.get("properties") and "anyOf" not in each:
            yield from _settings(target, known, f"{here}.")
            continue
        text = each.get("description") or target.get("description", "")
        choices = ", ".join(f"`{value}`" for value in target.get("enum", ()))
        meaning = f"{text} One of {choices}." if choices else text
        shown = "" if default in (None, "", [], {}) else f"`{_plain(default, target)}`"
        yield f"`{here}`", meaning, shown
        yield from _settings(target, known, f"{here}.")
        yield from _settings(_resolved(target.get("items", {}), known), known, f"{here}[].")


def _plain(value: Any, schema: Mapping[str, Any]) -> str:
    if schema.get("pattern") == DURATION_PATTERN:
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _resolved(each: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema to which a field refers, or that it has unless it is null."""
    variants = [*each.get("allOf", ()), *each.get("anyOf", ())]
    [schema, *others] = [one for one in variants if one.get("type") != "null"] or [each]
    if others:
        return each
    return known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _resources() -> str:
    parts = [f"# Resources\n\n{MADE}"]
    for definition in crds().values():
        group, names = definition["spec"]["group"], definition["spec"]["names"]
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]["properties"]
            parts.append(f"\n## {names['kind']}\n\n`{group}/{version['name']}`\n")
            for field in ("spec", "status"):
                rows = _fields(schema.get(field, {}), f"{field}.")
                parts.append("\n" + _table(("field", "type", "meaning"), rows))
    return "".join(parts)


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, ...]]:
    for name, each in sorted(schema.get("properties", {}).items()):
        kind = each.get("type", "integer or string")
        yield f"`{path}{name}`", kind, each.get("description", "")
        yield from _fields(each, f"{path}{name}.")
        inner = each.get("items") or each.get("additionalProperties")
        if isinstance(inner, dict):
            yield from _fields(inner, f"{path}{name}[].")


def _metrics() -> str:
    registry = CollectorRegistry()
    kept = (
        Metrics(registry),
        DecisionMetrics(registry),
        Auditor(registry, lambda: None, lambda: 0.0),
    )
    with_gpus = scenario.Cluster().add(scenario.node("node", gpus=1))
    view = ClusterView(1, with_gpus.snapshot(), Plan(), np.ones(1))
    computed = CollectorRegistry()
    ClusterMetrics(computed, lambda: view)
    del kept
    heads = ("metric", "type", "meaning")
    theirs = CollectorRegistry()
    kai = KaiQueueMetrics(theirs, str)
    del kai
    return (
        f"# Metrics by name\n\n{MADE}\n[Metrics](../metrics.md) explains what they are for.\n\n"
        + _table(heads, _families((*registry.collect(), *computed.collect())))
        + "\n## With `kai.queueMetrics: true`\n\nThe names and units of KAI-Scheduler.\n\n"
        + _table(heads, _families(theirs.collect()))
    )


def _families(collected: Iterable[Metric]) -> Iterator[tuple[str, ...]]:
    for family in sorted(collected, key=lambda family: family.name):
        total = "_total" if family.type == "counter" else ""
        yield f"`{family.name}{total}`", family.type, family.documentation


PAGES = {
    "commands.md": _commands,
    "configuration.md": _configuration,
    "resources.md": _resources,
    "scenarios.md": _scenarios,
    "metrics.md": _metrics,
}
"""What makes the pages of docs/reference, by their names."""


def write(directory: Path) -> None:
    """Write the pages."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (directory / name).write_text(page(), encoding="utf-8")
    for name in TABLES:
        path = DOCS / name
        path.write_text(with_tables(name, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(DOCS / "reference")
