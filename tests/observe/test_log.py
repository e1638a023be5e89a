import io
import json
import logging

import pytest

from kai_py.api.settings import LogFormat
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


@pytest.mark.parametrize("form", LogFormat)
def test_a_record_is_one_line_whatever_others_wrote(stream, form):
    configure_logging(form, stream=stream)
    queue = "q\x1b]0;pwned\x07\x1b[2J\n2026 ERROR forged \x9b\u202e"
    try:
        {}[queue]
    except KeyError:
        logging.getLogger("x").exception("queue %s", queue, extra={"fields": {"queue": queue}})
    text = stream.getvalue()
    assert text.endswith("\n")
    line = text.removesuffix("\n")
    assert not set("\n\x1b\x07\x9b\u202e") & set(line)
    if form is LogFormat.JSON:
        assert json.loads(line)["queue"] == queue
        assert "KeyError" in json.loads(line)["exception"]
    else:
        assert "exception=" in line


def test_fields_with_blanks_are_quoted(stream):
    configure_logging(LogFormat.TEXT, stream=stream)
    fields = {"gang": "a/b", "reason": "no idle GPU", "nodes": ("a", "b")}
    logging.getLogger("x").info("done", extra={"fields": fields})
    assert stream.getvalue().endswith('done gang=a/b reason="no idle GPU" nodes="a b"\n')
