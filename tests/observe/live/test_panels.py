"""What is drawn: bars to scale, letters in cells, lines that join, and a screen that fits."""

import io
import math

import pytest
from rich.console import Console
from rich.text import Text

from kai_py.observe.live.cluster import (
    GpuSlot,
    GpuState,
    LiveCluster,
    LiveGang,
    LiveNode,
    LiveQueue,
)
from kai_py.observe.live.feed import Feed, FeedLine, Tone, line_text
from kai_py.observe.live.panels import GangStyles, bar, gang_panel, gpu_panel, queue_panel
from kai_py.observe.live.screen import Screen

GANG = "default/Job/train"


def picture():
    held, starts = GpuSlot(GpuState.RUNNING, GANG), GpuSlot(GpuState.STARTING, GANG)
    leaves = GpuSlot(GpuState.TERMINATING, GANG)
    racks = [
        LiveNode(
            f"node-{rack}{index}", f"rack-{rack}", (held,) * 3 + (starts, leaves) + (GpuSlot(),) * 3
        )
        for rack in range(2)
        for index in range(4)
    ]
    waiting = LiveGang("default/Job/next", "q", 8, 0, 0, 0, 0, "8 pods must start together")
    running = LiveGang(GANG, "q", 5, 4, 3, 1, 0, "")
    queue = LiveQueue("q", deserved=16, fair_share=24, allocated=32, maximum=48)
    return LiveCluster(tuple(racks), (queue,), (running, waiting))


def drawn(width, height, feed=None):
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    screen = Screen(feed or Feed(), console)
    headline = (Text("headline"),)
    console.print(screen.draw(picture(), headline, width=width, height=height), end="")
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (140, 45), (200, 60)])
def test_the_screen_fits_and_shows_everything(size):
    lines = drawn(*size)
    assert len(lines) == size[1]
    assert {len(line) for line in lines[1:]} == {size[0]}
    text = "\n".join(lines)
    for part in (
        "headline",
        "rack-0",
        "rack-1",
        "node-13",
        "Queues",
        "Gangs",
        "Events",
        "8 pods",
    ):
        assert part in text
    assert "GPUs 40 of 64 allocated" in text


@pytest.mark.parametrize("size", [(1, 1), (5, 5), (20, 4), (10, 10), (40, 3)])
def test_a_terminal_too_small_for_anything_is_drawn_on(size):
    assert len(drawn(*size)) == size[1]


def test_cells_tell_running_starting_leaving_and_free():
    row = next(line for line in drawn(140, 45) if "node-00" in line)
    assert row.split()[2:11] == ["A", "A", "A", "a", "×", "·", "·", "·", "5/8"]


def test_a_bar_is_to_scale():
    queue = LiveQueue("q", deserved=16, fair_share=0, allocated=32, maximum=None)
    assert bar(queue, "red", 64, 64.0).plain[1:] == "█" * 15 + "▓" * 16 + "·" * 32
    idle = LiveQueue("q", deserved=16, fair_share=0, allocated=8, maximum=48)
    assert bar(idle, "red", 64, 64.0).plain[1:] == "█" * 7 + "░" * 8 + "·" * 31 + "┃" + "·" * 16


def test_a_bar_keeps_its_width_at_the_limits():
    full = LiveQueue("q", deserved=99, fair_share=99, allocated=99, maximum=99)
    assert len(bar(full, "red", 20, 64.0).plain) == 20
    assert len(bar(LiveQueue("q", 0, 0, 0, 0), "red", 20, 64.0).plain) == 20


def test_a_queue_may_deserve_without_a_limit():
    queue = LiveQueue("q", deserved=math.inf, fair_share=math.inf, allocated=4, maximum=None)
    assert bar(queue, "red", 8, 8.0).plain == "████░░░◆"
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(queue_panel(LiveCluster(queues=(queue,)), GangStyles(), width=80))
    assert "4 of unlimited deserved · fair unlimited" in console.file.getvalue()


def test_letters_and_shades_stay():
    marks = GangStyles()
    marks.add("a", "q")
    marks.add("b", "q")
    style = marks.style("a")
    marks.add("a", "other")
    assert (marks.letter("a"), marks.letter("b"), marks.letter("c")) == ("A", "B", "?")
    assert marks.style("a") == style
    assert marks.style("b") != style


def scheduled(time, pod, node):
    return FeedLine(time, Tone.GOOD, "Scheduled", pod, gang=GANG, pods=1, nodes=(node,))


def test_the_same_said_of_more_pods_joins_the_line():
    feed = Feed()
    for index in range(5):
        feed.add(scheduled(1.0 + index / 10, f"train-{index}", f"node-{index}"))
    [line] = feed.newest(9)
    assert line_text(line) == "train, 5 pods on node-0 … node-4"
    feed.add(scheduled(9.0, "train-5", "node-0"))
    assert line_text(feed.newest(9)[-1]) == "train-5 on node-0"


def test_other_words_and_other_gangs_do_not_join():
    feed = Feed()
    feed.add(scheduled(1.0, "train-0", "a"))
    feed.add(FeedLine(1.0, Tone.BAD, "Preempted", "train-0", "for x", gang=GANG, pods=1))
    feed.add(FeedLine(1.0, Tone.BAD, "Preempted", "other-0", "for x", gang="default/Job/o", pods=1))
    assert [line.word for line in feed.newest(9)] == ["Scheduled", "Preempted", "Preempted"]
    assert line_text(feed.newest(1)[0]) == "other-0: for x"


def test_long_sentences_fold_and_the_newest_stay():
    feed = Feed()
    for number in range(30):
        feed.add(FeedLine(float(number), Tone.WAIT, "FailedScheduling", f"s{number}", "word " * 30))
    lines = drawn(100, 30, feed)
    assert any("s29:" in line for line in lines)
    assert not any("s1:" in line for line in lines)
    assert {len(line) for line in lines[1:]} == {100}


def test_a_line_too_long_for_the_panel_is_cut_not_left_out():
    feed = Feed()
    feed.add(FeedLine(1.0, Tone.WAIT, "FailedScheduling", "s", "word " * 200))
    lines = drawn(80, 24, feed)
    told = [line for line in lines if "word" in line]
    assert "FailedScheduling" in told[0]
    assert told[-1].rstrip(" │").endswith("…")
    assert len(lines) == 24


def test_a_queue_shows_all_its_numbers_on_a_narrow_screen():
    text = "\n".join(drawn(80, 24))
    assert "fair 24, max 48" in text
    assert "┃ max ─╯" in text


def rendered(panel, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(panel)
    return console.file.getvalue().splitlines()


def test_queues_are_a_tree_and_gpus_of_others_a_number():
    queues = (LiveQueue("company", 8, 8, 4, None), LiveQueue("lab", 4, 4, 4, None, depth=1))
    used = (GpuSlot(GpuState.RUNNING),) * 700
    others = LiveNode("(others)", "", (*used, *(GpuSlot(),) * 300), is_sum=True)
    cluster = LiveCluster((LiveNode("n0", "", (GpuSlot(),) * 8), others), queues)
    lines = rendered(queue_panel(cluster, GangStyles(), width=80))
    assert [line[2:9] for line in lines[1:4:2]] == ["company", "  lab  "]
    lines = rendered(gpu_panel(cluster, GangStyles(), width=80, rows=9))
    assert "GPUs 700 of 1008 allocated" in lines[0]
    assert any("(others) 700 of 1000 allocated" in line for line in lines)
    assert any(line.count("·") == 8 for line in lines)


def test_a_long_name_is_cut_and_leaves_pods_and_states_to_be_seen():
    long = LiveGang(f"default/Job/{'very-' * 12}long", "q", 4, 4, 4, 0, 0, "")
    short = LiveGang("default/Job/chat", "q", 6, 6, 6, 0, 0, "")
    cluster = LiveCluster((), (), (long, short))
    for selected, end in (("", "…"), (short.key, "very-long")):
        first, second = rendered(gang_panel(cluster, GangStyles(), rows=5, selected=selected), 40)[
            1:3
        ]
        assert f"{end}  4/4  running" in first
        assert "6/6  running" in second
