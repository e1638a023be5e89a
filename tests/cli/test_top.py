"""kai-py top on a terminal: it fills it, follows its size, and gives it back."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios

import pytest

from kai_py.api.crd import crds
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.nodes import h100_node
from tests.support.cluster.manifests import pod, pod_spec, queue
from tests.support.patience import patience
from tests.support.repository import KAI_PY

TOP = [*KAI_PY, "top"]
LONGEST = 60.0
INTO_SCREEN, OUT_OF_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWN, HIDDEN = b"\x1b[?25h", b"\x1b[?25l"

pytestmark = pytest.mark.cluster


class Terminal:
    """A pseudo terminal with kai-py top in it, and all that it wrote."""

    def __init__(self, width, height):
        self.master, self.end = pty.openpty()
        os.set_blocking(self.master, False)
        self.resize(width, height)
        self.settings = termios.tcgetattr(self.end)
        self.written = b""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.master, self._read)

    def _read(self):
        with contextlib.suppress(OSError):
            self.written += os.read(self.master, 1 << 16)
            self._news.set()

    def read_rest(self):
        """Read what a program wrote that has ended: the loop may learn of its end first."""
        with contextlib.suppress(OSError):
            while True:
                self.written += os.read(self.master, 1 << 16)

    def resize(self, width, height):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    async def shows(self, text, process, *, after=0):
        """Wait until it was written; fail at once when the program has ended without it."""
        ended = asyncio.create_task(process.wait())
        try:
            async with asyncio.timeout(patience(LONGEST)):
                while text not in self.written[after:]:
                    assert not ended.done(), self.written.decode(errors="replace")
                    self._news.clear()
                    news = asyncio.create_task(self._news.wait())
                    await asyncio.wait((news, ended), return_when=asyncio.FIRST_COMPLETED)
                    news.cancel()
        finally:
            ended.cancel()

    def close(self):
        asyncio.get_running_loop().remove_reader(self.master)
        os.close(self.master)
        os.close(self.end)


@contextlib.asynccontextmanager
async def top_on_a_terminal(tmp_path, width=100, height=30, title=b"1 node", objects=()):
    async with EmbeddedCluster(kubelet=not objects) as cluster:
        cluster.create_all(crds().values())
        cluster.create(h100_node("node-0", gpus=4))
        cluster.create_all(objects)
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        terminal = Terminal(width, height)
        process = await asyncio.create_subprocess_exec(
            *TOP,
            *("--kubeconfig", str(path)),
            stdin=terminal.end,
            stdout=terminal.end,
            stderr=terminal.end,
            env=os.environ | {"TERM": "xterm-256color"},
            start_new_session=True,
        )
        try:
            await terminal.shows(title, process)
            yield terminal, process
            async with asyncio.timeout(patience(LONGEST)):
                await process.wait()
            terminal.read_rest()
            assert terminal.written.count(INTO_SCREEN) == terminal.written.count(OUT_OF_SCREEN) == 1
            assert terminal.written.rindex(SHOWN) > terminal.written.rindex(HIDDEN)
            assert termios.tcgetattr(terminal.end) == terminal.settings
            assert b"Traceback" not in terminal.written
        finally:
            if process.returncode is None:
                process.kill()
            terminal.close()


async def test_it_ends_with_q_and_gives_the_terminal_back(tmp_path):
    async with top_on_a_terminal(tmp_path) as (terminal, process):
        terminal.press(b"q")
    assert process.returncode == 0


async def test_it_follows_the_size_of_the_terminal(tmp_path):
    async with top_on_a_terminal(tmp_path, width=100) as (terminal, process):
        wide, wider = "─".encode() * 90, "─".encode() * 110
        assert wider not in terminal.written
        seen = len(terminal.written)
        terminal.resize(140, 40)
        await terminal.shows(wide, process, after=seen)
        await terminal.shows(wider, process, after=seen)
        terminal.press(b"xQ")
    assert process.returncode == 0


async def test_an_interrupt_ends_it_too(tmp_path):
    async with top_on_a_terminal(tmp_path) as (_, process):
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0


@pytest.mark.parametrize(("width", "height"), [(40, 12), (20, 6)])
async def test_it_lives_on_narrow_terminals(tmp_path, width, height):
    narrow = top_on_a_terminal(tmp_path, width, height, title=b"kai-py top")
    async with narrow as (terminal, process):
        await terminal.shows("╭".encode(), process)
        assert "─".encode() * (width + 1) not in terminal.written
        terminal.press(b"q")
    assert process.returncode == 0


def running(name):
    """A pod on the node."""
    made = pod(name, pod_spec(gpus=1))
    made["spec"]["nodeName"] = "node-0"
    return made


async def test_gangs_are_filtered_described_and_evicted_after_a_yes(tmp_path):
    objects = [queue(), running("train"), running("serve")]
    async with top_on_a_terminal(tmp_path, objects=objects, height=40) as (terminal, process):

        async def press(keys, text):
            seen = len(terminal.written)
            terminal.press(keys)
            await terminal.shows(text, process, after=seen)

        await terminal.shows(b"1 of 2", process)
        await press(b"/trai", b"filter: trai")
        await press(b"\r", b"1 of 1")
        await press(b"s", b"/ filter (trai)  s sort (state)")
        await press(b"\x1b", b" of 2")
        await press(b"/train\r", b"1 of 1")
        await press(b"d", b"default/Pod/train is")
        await press(b"d", b"Events")
        await press(b"x", b"y/n: evict the pods of default/Pod/train?")
        await press(b"n", b"q quit")
        await press(b"x", b"y/n: evict the pods of default/Pod/train?")
        await press(b"y", b"1 pod of default/Pod/train evicted")
        terminal.press(b"q")
    assert process.returncode == 0
