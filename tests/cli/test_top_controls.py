"""What the keys of kai-py top do."""

import asyncio

import pytest
from rich.text import Text

from kai_py.cli import top
from kai_py.cli.top_controls import (
    DOWN,
    ENTER,
    ESCAPE,
    SORTS,
    UP,
    Controls,
    KeyRequest,
    Mode,
    keys_in,
)
from kai_py.observe.live.cluster import LiveCluster, LiveGang
from kai_py.observe.live.feed import Feed
from tests.support.patience import patience

GANGS = (
    LiveGang("ml/Job/train", "research", 4, 4, 4, 0, 0, ""),
    LiveGang("ml/Job/tune", "research", 8, 0, 0, 0, 0, "no capacity"),
    LiveGang("web/Job/serve", "inference", 1, 1, 1, 0, 0, ""),
)


def controls():
    made = Controls()
    made.arrange(GANGS)
    return made


def names(made):
    return [gang.key.rpartition("/")[2] for gang in made.arrange(GANGS)]


def type_in(made, text):
    return [made.press(key) for key in text]


def test_keys_of_a_terminal():
    assert list(keys_in(b"/tr\r\x1b[A\x1bOB\x7f")) == ["/", "t", "r", ENTER, UP, DOWN, "backspace"]
    assert list(keys_in("é\x1b".encode())) == ["é", ESCAPE]
    assert list(keys_in(b"\x1b[5~\x01\xff")) == []


def test_a_filter_is_kept_or_cleared():
    made = controls()
    type_in(made, "/tun")
    assert names(made) == ["tune"]
    assert made.mode is Mode.FILTER
    made.press(ENTER)
    assert (made.mode, names(made)) == (Mode.LIST, ["tune"])
    assert "/ filter (tun)" in made.status()
    type_in(made, "/q")
    made.press("backspace")
    assert made.filter == "tun"
    made.press(ESCAPE)
    assert len(names(made)) == 3
    type_in(made, "/INFERENCE")
    assert names(made) == ["serve"]
    made.press(ENTER)
    made.press(ESCAPE)
    assert len(names(made)) == 3


def test_every_order():
    made, orders = controls(), {}
    for _ in SORTS:
        orders[made.sort] = names(made)
        made.press("s")
    assert made.sort == "age"
    assert orders["name"] == ["train", "tune", "serve"]
    assert orders["state"][0] == "tune"
    assert orders["queue"][0] == "serve"
    assert orders["pods"][0] == "tune"


def test_what_is_selected_stays_selected():
    made = controls()
    assert made.selected == "ml/Job/train"
    made.press(DOWN)
    made.press(DOWN)
    made.press(DOWN)
    assert made.selected == "web/Job/serve"
    made.press("s")
    made.arrange(tuple(reversed(GANGS)))
    assert made.selected == "web/Job/serve"
    made.press(UP)
    assert made.selected != "web/Job/serve"
    made.arrange(())
    assert made.selected == ""
    assert made.press("x") is made.press("d") is None


def test_it_describes_and_closes():
    made = controls()
    assert made.press("d") is KeyRequest.DESCRIBE
    assert made.press(DOWN) is KeyRequest.DESCRIBE
    assert made.press(ENTER) is KeyRequest.CLOSE
    assert made.press(DOWN) is None


@pytest.mark.parametrize(
    ("answer", "wish"), [("y", KeyRequest.EVICT), ("n", None), ("q", None), (ENTER, None)]
)
def test_an_eviction_needs_a_yes(answer, wish):
    made = controls()
    assert made.press("x") is None
    assert made.status().startswith("y/n: evict the pods of ml/Job/train?")
    assert made.press(answer) is wish
    assert made.mode is Mode.LIST


def test_a_gang_that_goes_while_it_is_asked_about_is_not_confused_with_the_next():
    made = controls()
    made.press("x")
    made.arrange(GANGS[1:])
    assert made.mode is Mode.LIST
    assert made.press("y") is None


class Source:
    """A cluster without anything in it."""

    feed = Feed()

    def live_cluster(self):
        return LiveCluster()

    def headline(self):
        return (Text("the headline"),)


async def test_a_dumb_terminal_gets_the_screen_once(monkeypatch, capsys):
    """It has no other screen to switch to: nothing at all was shown there."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    async with asyncio.timeout(patience(5)):
        await top._show(Source(), None, once=False)
    assert capsys.readouterr().out.count("the headline") == 1
