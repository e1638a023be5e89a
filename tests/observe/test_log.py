import io
import json
import logging

import pytest

from kai_py.config import LogFormat
from kai_py.observe.log import configure_logging


@pytest.fixture
def stream(logging_as_before):
    return io.StringIO()


def test_json_lines_have_fields_and_tracebacks(stream):
    configure_logging(LogFormat.JSON, stream=stream)
    log = logging.getLogger("kai_py.commit.binding")
    log.info("pod %s bound", "a/b", extra={"fields": {"node": "node-a"}})
    try:
        int("bad")
    except ValueError:
        log.exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["message"], first["level"], first["node"]) == ("pod a/b bound", "info", "node-a")
    assert first["time"].endswith("Z")
    assert "ValueError: invalid literal" in second["exception"]


def test_text_lines_are_short(stream):
    configure_logging(LogFormat.TEXT, stream=stream)
    logging.getLogger("kai_py.commit.binding").warning("slow", extra={"fields": {"pods": 3}})
    line = stream.getvalue().strip()
    assert line.split(" ", 1)[1] == "WARNING commit.binding: slow pods=3"


def test_less_important_records_are_left_out(stream):
    configure_logging(LogFormat.TEXT, level=logging.WARNING, stream=stream)
    logging.getLogger("kai_py").info("hidden")
    assert stream.getvalue() == ""
