"""Controllers that fail: the object is named once, and the others go on."""

import logging

import pytest

from kai_py.embedded.controllers.runtime import Controller, Runtime, key_of
from tests.embedded.manifests import config_map


def fail(*_):
    raise KeyError("metadata")


@pytest.mark.parametrize("keys", [fail, lambda _, change: [key_of(change.object)]])
@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_failure_is_one_line_and_a_trace_for_debugging(cluster, caplog, keys, level):
    reconciled = []
    runtime = Runtime(cluster.api)
    runtime.add(Controller(name="broken", reconcile=fail, keys=keys))
    sound = Controller(name="sound", reconcile=reconciled.append, keys=lambda *_: [("", "x")])
    runtime.add(sound)
    with caplog.at_level(level, logger="kai_py.embedded.controllers.runtime"):
        for name in ("first", "first-again"):
            cluster.create(config_map(name))
        cluster.clock.advance(1)
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in said] == [
        f"broken: default/{name} could not be reconciled: KeyError: 'metadata'"
        for name in ("first", "first-again")
    ]
    assert all(bool(record.exc_info) == (level == logging.DEBUG) for record in said)
    assert reconciled
