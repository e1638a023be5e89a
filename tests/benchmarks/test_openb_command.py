"""``python -m benchmarks.openb`` on a part of each published list, checked by what it writes.

The check reads the same files again and shares no code with the replay.
"""

import csv
import gzip
import re
import sys

import pytest

from benchmarks.openb.__main__ import main
from tests.support.repository import OPENB, absent

LISTS = (
    "default", "gpushare40", "gpushare100", "multigpu20", "multigpu50", "gpuspec10", "gpuspec33",
    "cpu100", "cpu250",
)  # fmt: skip
FEW = ("default",)
"""Replayed in `make test-fast` too."""
EVERY = 40
"""One node in so many is kept."""

csv.field_size_limit(sys.maxsize)


def rows_of(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def published():
    if reason := absent(OPENB):
        pytest.skip(reason)
    return rows_of(OPENB / "nodes_gpu.csv")


def a_part(published, name, directory):
    """The trace with few of its nodes, and enough of its arrivals to ask for 130 % of those."""
    [order] = [o for o in rows_of(OPENB / f"orders_{name}.csv.gz") if o["seed"] == "43"]
    nodes = published[::EVERY]
    ranks = [int(rank) for rank in order["node_rank"].split()][::EVERY]
    ranks = [sorted(ranks).index(rank) for rank in ranks]
    pods = sorted(rows_of(OPENB / f"pods_{name}.csv.gz"), key=lambda pod: pod["pod"])
    remaining, taken = 1300 * sum(int(node["gpus"]) for node in nodes), []
    for position in map(int, order["pods"].split()):
        if remaining <= 0:
            break
        remaining -= int(pods[position]["gpus"]) * int(pods[position]["gpu_milli"])
        taken.append(position)
    lines = [",".join(nodes[0]), *(",".join(node.values()) for node in nodes)]
    (directory / "nodes_gpu.csv").write_text("\n".join(lines) + "\n")
    (directory / f"pods_{name}.csv.gz").write_bytes((OPENB / f"pods_{name}.csv.gz").read_bytes())
    with gzip.open(directory / f"orders_{name}.csv.gz", "wt") as file:
        cells = (" ".join(map(str, taken)), " ".join(map(str, ranks)))
        file.write(f"seed,pods,node_rank\n43,{cells[0]},{cells[1]}\n")
    return nodes, [pods[position] for position in taken]


def command(directory, name, strategy, monkeypatch, capsys):
    """What the command prints and writes."""
    out = directory / f"{strategy}.csv"
    options = f"openb --data {directory} --list {name} --seed 43 --strategy {strategy}"
    monkeypatch.setattr(sys, "argv", [*options.split(), "--placements", str(out)])
    main()
    return capsys.readouterr().out, [line.split(",") for line in out.read_text().splitlines()]


def check(nodes, arrivals, written):
    """Every line stands for its arrival, and no node or GPU holds more than it has."""
    left = {
        node["node"]: (
            node,
            {"cpu_milli": int(node["cpu_milli"]), "mem_mib": int(node["mem_mib"])},
            [1000] * int(node["gpus"]),
        )
        for node in nodes
    }
    assert len(written) == len(arrivals)
    for pod, (name, place, devices) in zip(arrivals, written, strict=True):
        assert name == pod["pod"]
        if not place:
            assert devices == ""
            continue
        node, base, gpus = left[place]
        chosen = [int(index) for index in devices.split("-")] if devices else []
        assert len(chosen) == len(set(chosen)) == int(pod["gpus"])
        assert not pod["gpu_spec"] or node["model"] in pod["gpu_spec"].split("|")
        for index in chosen:
            gpus[index] -= int(pod["gpu_milli"])
            assert gpus[index] >= 0
        for resource in base:
            base[resource] -= int(pod[resource])
            assert base[resource] >= 0


def curve(nodes, arrivals, written):
    """% asked to the mean % placed over the arrivals that round to it."""
    capacity = 1000 * sum(int(node["gpus"]) for node in nodes)
    asked, placed, found = 0, 0, {}
    for pod, (_, place, _) in zip(arrivals, written, strict=True):
        milli = int(pod["gpus"]) * int(pod["gpu_milli"])
        asked, placed = asked + milli, placed + (milli if place else 0)
        found.setdefault(round(100 * asked / capacity), []).append(100 * placed / capacity)
    return {at: sum(values) / len(values) for at, values in found.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in LISTS]
)
@pytest.mark.parametrize("strategy", ["fgd", "default", "together"])
def test_what_is_written_fits_and_adds_up_to_what_is_printed(
    published, name, strategy, tmp_path, monkeypatch, capsys
):
    nodes, arrivals = a_part(published, name, tmp_path)
    text, written = command(tmp_path, name, strategy, monkeypatch, capsys)
    check(nodes, arrivals, written)
    printed = re.findall(r"allocated at (\d+) % asked: (\S+) %", text)
    expected = curve(nodes, arrivals, written)
    assert [int(at) for at, _ in printed] == [at for at in (100, 130) if at in expected]
    count = sum(bool(place) for _, place, _ in written)
    assert f"{count} of {len(arrivals)} pods placed" in text
    for at, amount in printed:
        assert float(amount) == pytest.approx(expected[int(at)], abs=0.005001)
    assert max(expected.values()) > 70


@pytest.mark.slow
def test_the_same_command_writes_the_same_file(published, tmp_path, monkeypatch, capsys):
    a_part(published, "gpuspec10", tmp_path)
    runs = [command(tmp_path, "gpuspec10", "default", monkeypatch, capsys)[1] for _ in range(2)]
    assert runs[0] == runs[1]
