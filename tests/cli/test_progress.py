import contextlib
import io
import sys

from kai_py.cli.output import progress


class Screen(io.StringIO):
    def isatty(self):
        return True


def shown(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress("simulated hours", 24.0) as tell:
        tell(12.0)
    return stream.getvalue()


def test_the_bar_is_for_terminals_only(monkeypatch):
    assert shown(io.StringIO(), monkeypatch) == ""
    assert "simulated hours" in shown(Screen(), monkeypatch)


def test_the_bar_goes_when_the_work_fails(monkeypatch):
    stream = Screen()
    monkeypatch.setattr(sys, "stderr", stream)
    with contextlib.suppress(ValueError), progress("planning"):
        raise ValueError
    assert stream.getvalue().endswith("\x1b[2K") or "\x1b[?25h" in stream.getvalue()
