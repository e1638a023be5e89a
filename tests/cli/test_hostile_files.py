"""Files that expand, nest or repeat without measure fail with a sentence, at once."""

import copy
import gzip
import json
import random
import unicodedata
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_py.api import manifests
from kai_py.cli import input_files, main
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.simulate.files import objects
from tests.support.poison.fuzz import paths
from tests.support.poison.objects import ordinary
from tests.support.poison.process import canary, small_world

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGES = "".join(
    f"m{n}: &m{n} {{{f'<<: *m{n - 1}, ' if n else ''}"
    f"{', '.join(f'k{n}x{k}: v' for k in range(50))}}}\n"
    for n in range(80)
)
LISTS = f"a: &a {{{', '.join(f'k{n}: v' for n in range(500))}}}\n" + "".join(
    f"b{n}: {{<<: [{', '.join(['*a'] * 50)}]}}\n" for n in range(5)
)
NESTED = "a: " + "[" * 100_000
DEEP = '{"items": [{"spec": ' + "[" * 100_000 + "]" * 100_000 + "}]}"
TEXTS = {"aliases": ALIASES, "merges": MERGES, "lists": LISTS, "nested": NESTED}


def run(*arguments):
    result = CliRunner().invoke(main.app, [*map(str, arguments)], obj=main.Invocation())
    error = result.exception
    if error is not None and not isinstance(error, SystemExit | CommandError):
        raise error
    told = str(error) if isinstance(error, CommandError) else result.output
    code = error.exit_code if isinstance(error, CommandError) else result.exit_code
    return code, told


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_lint_finds_that_a_file_is_no_manifest(tmp_path, name):
    file = tmp_path / "bomb.yaml"
    file.write_text(TEXTS[name])
    code, told = run("lint", file)
    assert code == ExitCode.FOUND
    assert told.count("\n") == 1
    assert any(word in told for word in ("expand", "merges copy", "nested too deeply"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_migrate_refuses_what_it_cannot_read(tmp_path, name):
    file = tmp_path / "bomb.yaml"
    file.write_text(TEXTS[name])
    code, told = run("migrate", file)
    assert code == ExitCode.USAGE
    assert told.startswith(f"{file}:")
    assert "\n" not in told


def test_migrate_refuses_what_is_no_object(tmp_path):
    file = tmp_path / "list.yaml"
    file.write_text("- a\n- b\n")
    code, told = run("migrate", file)
    assert (code, told) == (ExitCode.USAGE, f"{file}:1 items[0]: is not a Kubernetes object")


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        (("what-if", "--drain", "n0", "--from"), "node n0: not found"),
        (("audit",), "Node/n0: v9 is not supported: use v1"),
        (("plan",), "v9 is not supported: use v1"),
        (("replay",), "Node/n0 is ignored: v9 is not supported"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_objects_of_other_versions_are_told_and_left_out(tmp_path, caplog, command, answers):
    """As files of a newer cluster have them: nothing is decided without a word on half of it."""
    file = tmp_path / "newer.json"
    file.write_text('{"items": [{"apiVersion": "v9", "kind": "Node", "metadata": {"name": "n0"}}]}')
    _, told = run(*command, file)
    assert answers in told
    if command[0] == "what-if":
        assert "Node n0 is left out: v9 is not supported: use v1" in caplog.text


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_migrate_refuses_a_key_that_is_set_twice(tmp_path, suffix):
    file = tmp_path / f"twice.{suffix}"
    kind = '"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"'
    file.write_text(f'{{{kind}, "metadata": {{"name": "a",\n"name": "b"}}}}')
    code, told = run("migrate", file)
    assert told == f"{file}:1: name is set twice in one mapping: the first one is lost"
    assert code == ExitCode.USAGE


@pytest.mark.parametrize("command", [("lint",), ("migrate",), ("plan",)])
def test_a_text_that_is_too_large_is_not_parsed(tmp_path, monkeypatch, command):
    monkeypatch.setattr(manifests, "MAX_CHARACTERS", 10_000)
    file = tmp_path / "large.yaml"
    file.write_text("a: " + "x" * 20_000)
    code, told = run(*command, file)
    assert "is larger than" in told
    assert code in (ExitCode.FOUND, ExitCode.USAGE, ExitCode.OK)
    # Only lint needs lines of YAML.
    assert ("or as JSON" in told) == (command != ("lint",))


def test_json_of_any_size_is_read_where_lines_do_not_matter(tmp_path, monkeypatch):
    """As of ``kubectl get podgroups -A -o json`` in a large cluster."""
    monkeypatch.setattr(manifests, "MAX_CHARACTERS", 1_000)
    item = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology"}
    items = [{**item, "metadata": {"name": f"t{number}"}} for number in range(50)]
    file = tmp_path / "large.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert run("migrate", file)[0] == ExitCode.OK


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "MAX_BYTES", 1 << 20)
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * (2 << 20))
    assert run("lint", file) == (ExitCode.USAGE, f"{file}: is larger than 1 MiB")


@pytest.mark.parametrize("lies", [False, True])
def test_replay_refuses_an_archive_that_expands_without_measure(tmp_path, monkeypatch, lies):
    monkeypatch.setattr("kai_py.cli.kai_archive.MAX_BYTES", 1 << 20)
    file = tmp_path / "bomb.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.json", b"{" + b" " * (8 << 20))
    if lies:
        size, false_size = (8 << 20) + 1, 100
        content = file.read_bytes()
        file.write_bytes(
            content.replace(size.to_bytes(4, "little"), false_size.to_bytes(4, "little"))
        )
    code, told = run("replay", file)
    assert code == ExitCode.USAGE
    assert str(file) in told


@pytest.mark.parametrize("arguments", [("replay",), ("explain", "gang", "x", "--from")])
def test_saved_clusters_have_a_limit(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr(objects, "MAX_BYTES", 1 << 20)
    file = tmp_path / "bomb.json.gz"
    file.write_bytes(gzip.compress(b'{"items": []' + b" " * (8 << 20)))
    code, told = run(*arguments, file)
    assert code == ExitCode.USAGE
    assert "expands to more than" in told


@pytest.mark.parametrize("arguments", [("replay",), ("explain", "gang", "x", "--from")])
def test_depth_has_a_limit(tmp_path, arguments):
    file = tmp_path / "deep.json"
    file.write_text(DEEP)
    code, told = run(*arguments, file)
    assert code == ExitCode.USAGE
    assert "nested too deeply" in told


def test_depth_in_an_archive_has_a_limit(tmp_path):
    file = tmp_path / "deep.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.json", '{"rawObjects": ' + DEEP + "}")
    code, told = run("replay", file)
    assert code == ExitCode.USAGE
    assert "is nested too deeply" in told or "is not a snapshot" in told


def test_merges_mean_what_they_mean_in_yaml():
    text = (
        "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3, w: 3}\nd: {<<: *b, y: 4}\n"
    )
    [document] = manifests.read_documents(text)
    assert document.value["c"] == {"x": 1, "y": 1, "z": 3, "w": 3}
    assert document.value["d"] == {"y": 4, "z": 2}


ATTACK = "\x1b]0;pwned\x07\x1b[2J\nERROR forged\x9b1m\u202egnp.exe\u2066\x7f²٣💥"
OTHER_TYPES = (ATTACK, "9" * 5000, "²Gi", None, [], {}, [None], True, 2**63, 0.5)
COMMANDS = (
    ("lint",),
    ("lint", "-o", "json"),
    ("migrate",),
    ("migrate", "-o", "yaml"),
    ("plan",),
    ("plan", "-o", "json"),
    ("audit",),
    ("replay",),
    ("explain", "gang", "pending", "--no-suggestions", "--from"),
    ("explain", "queue", "tenant", "--from"),
    ("what-if", "--set", "tenant.maxGPUs=1", "--from"),
)


def with_other_values(document, chance):
    """The object with one to three of its values replaced by values of any type."""
    made = copy.deepcopy(document)
    for _ in range(chance.randint(1, 3)):
        *above, last = chance.choice([path for path in paths(made) if path])
        holder = made
        for step in above:
            holder = holder[step]
        holder[last] = copy.deepcopy(chance.choice(OTHER_TYPES))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_any_value_in_any_place_is_told_in_printable_sentences(tmp_path, command, seed):
    """Neither an error of ours nor what a terminal acts on comes of a file, whatever is in it."""
    chance = random.Random(seed)
    items = [
        with_other_values(each, chance) if chance.random() < 0.7 else each
        for each in (*small_world(), *canary(), *ordinary())
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    code, told = run(*command, file)
    assert code != ExitCode.INTERNAL
    controls = {each for each in told if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")}
    assert controls <= {"\n"}
    assert "\nERROR forged" not in told


def workload(kind, group, **fields):
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "w"}, **fields}


@pytest.mark.parametrize("command", [("what-if", "--drain", "n0"), ("explain", "gang", "a")])
@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Node", "status.conditions[0]", 5),
        ("Node", "status.conditions", 5),
        ("Node", "spec", []),
        ("Node", "status", []),
        ("Pod", "spec", []),
        ("Pod", "status", "x"),
        ("Pod", "metadata.ownerReferences[0]", 5),
        ("Pod", "metadata.finalizers", 5),
        ("ResourceClaim", "status", []),
        ("ResourceSlice", "spec.devices[0]", 5),
        ("Job", "spec.parallelism", "x"),
        ("Job", "spec.template", []),
        ("Job", "status.conditions[0]", 5),
        ("Deployment", "spec.template.spec.containers", 5),
        ("StatefulSet", "spec.volumeClaimTemplates", {}),
    ],
)
def test_a_field_of_another_type_is_named_with_its_object(tmp_path, command, kind, path, value):
    items = copy.deepcopy([*small_world(), *ordinary()])
    items += [workload("Deployment", "apps"), workload("StatefulSet", "apps")]
    found = next(each for each in items if each["kind"] == kind)
    *above, last = path.replace("[0]", "").split(".")
    holder = found
    for step in above:
        holder = holder.setdefault(step, {})
    holder[last] = [value] if path.endswith("[0]") else value
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"items": items}))
    code, told = run(*command, "--from", file)
    assert code == ExitCode.USAGE
    assert told.startswith(f"{file}: {kind} ")
    assert f"{found['metadata']['name']}: Expected" in told
    assert f"`$.{path}`" in told


def test_three_objects_with_fields_of_other_types_are_named(tmp_path):
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{n}"}} for n in range(5)]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"items": [each | {"spec": 5} for each in nodes]}))
    _, told = run("what-if", "--drain", "n0", "--from", file)
    assert [told.count(f"Node n{n}: ") for n in range(5)] == [1, 1, 1, 0, 0]
    assert "and 2 more" in told


def test_custom_resources_have_the_types_that_their_definition_admits(tmp_path):
    other = {"apiVersion": "a.example/v1", "kind": "Run", "metadata": {"name": "r"}, "spec": []}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"items": [other]}))
    _, told = run("what-if", "--drain", "n0", "--from", file)
    assert told.startswith("node n0: not found")


@pytest.mark.parametrize("text", ["- 5\n- null\n", "metadata: name\nspec: 5\nkind: Queue\n"])
@pytest.mark.parametrize("command", [("lint",), ("migrate",), ("plan",), ("audit",), ("replay",)])
def test_what_is_no_object_is_told(tmp_path, command, text):
    file = tmp_path / "no-object.yaml"
    file.write_text(text)
    code, told = run(*command, file)
    assert code in (ExitCode.OK, ExitCode.FOUND, ExitCode.USAGE)
    assert told


def test_json_with_escaped_characters_beyond_16_bits_is_read():
    [document] = manifests.read_documents(json.dumps({"a": "💥", "💥": "\ud83d"}))
    assert document.value == {"a": "💥", "💥": "\ufffd"}


NODE = '{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {cpu: "1"}}}\n'


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("command", ["lint", "migrate", "plan", "audit"])
def test_files_of_other_editors_are_read(tmp_path, command, encoding):
    file = tmp_path / "manifest.yaml"
    file.write_bytes(NODE.replace("\n", "\r\n").encode(encoding))
    code, told = run(command, file)
    assert code == ExitCode.OK
    assert "is not" not in told


@pytest.mark.parametrize("command", ["lint", "migrate", "plan", "audit"])
def test_an_empty_name_is_not_the_working_directory(command):
    code, told = run(command, "")
    assert (code, "name of a FILE is empty" in told) == (ExitCode.USAGE, True)


def test_standard_input_may_be_closed(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    for read in (lambda: input_files.text_of("-"), lambda: input_files.read_objects([Path("-")])):
        with pytest.raises(CommandError, match="stdin: is closed"):
            read()


@pytest.mark.parametrize("time", ["nan", "inf", "1e400", "-1", "253402300800", "-1e300"])
@pytest.mark.parametrize("command", ["plan", "audit", "replay"])
def test_times_beyond_the_calendar_are_refused(tmp_path, command, time):
    file = tmp_path / "cluster.json"
    file.write_text('{"items": []}')
    code, told = run(command, file, f"--now={time}")
    assert (code, "--now" in told) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("arguments", [("replay",), ("explain", "gang", "x", "--from")])
def test_a_cluster_that_does_not_exist_is_named(tmp_path, arguments):
    file = tmp_path / "none"
    assert run(*arguments, file) == (ExitCode.USAGE, f"{file}: No such file or directory")


@pytest.mark.parametrize("command", ["lint", "migrate", "plan", "audit"])
def test_a_file_that_breaks_off_is_named(command):
    """The memory of a process can be opened, and not be read from its beginning."""
    file = "/proc/self/mem"
    assert run(command, file) == (ExitCode.USAGE, f"{file}: Input/output error")


def test_standard_input_has_a_limit(monkeypatch):
    monkeypatch.setattr(objects, "MAX_BYTES", 1 << 20)
    large = b"#" * (2 << 20)
    result = CliRunner().invoke(main.app, ["plan", "-"], obj=main.Invocation(), input=large)
    assert "is larger than" in result.output


@pytest.mark.parametrize(
    "command",
    [
        *(("plan",), ("audit",), ("replay",), ("what-if", "--drain", "n0", "--from")),
        ("explain", "gang", "x", "--from"),
    ],
    ids=" ".join,
)
def test_of_an_object_that_a_file_has_twice_the_last_counts(tmp_path, command):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"items": [node, node]}))
    code, told = run(*command, file)
    assert code in (ExitCode.OK, ExitCode.FOUND, ExitCode.USAGE), told


@pytest.mark.slow
def test_objects_without_what_only_a_server_sets_are_reconciled(tmp_path, caplog):
    """Manifests that were never applied have no generation, which their controllers report."""
    pods = {"selector": {"matchLabels": {"app": "a"}}, "replicas": 1}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    items = [
        {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
        for api, kind, spec in (
            ("apps/v1", "Deployment", {**pods, "template": template}),
            ("apps/v1", "ReplicaSet", {**pods, "template": template}),
            ("apps/v1", "StatefulSet", {**pods, "serviceName": "a", "template": template}),
            ("policy/v1", "PodDisruptionBudget", {"minAvailable": 1, **pods}),
            ("v1", "Node", {}),
        )
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"items": items}))
    code, _ = run("what-if", "--drain", "a", "--from", file)
    assert code in (ExitCode.OK, ExitCode.FOUND)
    assert not [each.getMessage() for each in caplog.records if each.exc_info]
