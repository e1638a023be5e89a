"""A headless Chromium, driven through its DevTools protocol by aiohttp alone."""

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import time
from pathlib import Path

import aiohttp

from tests.support.patience import patience

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--no-first-run",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip
ENDPOINT = "DevTools listening on "
LONGEST = 30.0


def find_browser() -> str | None:
    """The browser to use: $KAI_PY_CHROMIUM, or one that is installed."""
    named = os.environ.get("KAI_PY_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page; what the console says of errors is kept in ``errors``."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)

    async def call(self, method: str, **params):
        """Call a method of the protocol and give its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        async with asyncio.timeout(patience(LONGEST)):
            while True:
                answer = await self._socket.receive_json()
                self._note(answer)
                if answer.get("id") == number:
                    assert "error" not in answer, answer["error"]
                    return answer["result"]

    async def open(self, url: str, *, width: int, height: int, dark: bool = False) -> None:
        await self.call("Runtime.enable")
        await self.call("Log.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str):
        """What a JavaScript expression gives; a promise is waited for."""
        given = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in given, given["exceptionDetails"]
        return given["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + patience(LONGEST)
        while not await self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}; {self.errors}"
            await asyncio.sleep(0.1)

    async def picture(self, *, whole: bool = False) -> bytes:
        """What is to be seen as PNG; ``whole``: beyond the window too."""
        taken = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def _note(self, message) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            thrown = message["params"]["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description") or thrown["text"])
        if message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] == "error":
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")


@contextlib.asynccontextmanager
async def browsing(folder: Path):
    """A tab of a browser of its own, with its profile in ``folder``."""
    process = await asyncio.create_subprocess_exec(
        find_browser(),
        *OPTIONS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(patience(LONGEST)):
            address = await _address(process.stderr)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as socket,
        ):
            browser = Tab(socket, "")
            target = await browser.call("Target.createTarget", url="about:blank")
            attached = await browser.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            yield Tab(socket, attached["sessionId"])
            await browser.call("Browser.close")
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _address(stderr: asyncio.StreamReader) -> str:
    while line := await stderr.readline():
        text = line.decode(errors="replace").strip()
        if text.startswith(ENDPOINT):
            return text.removeprefix(ENDPOINT)
    raise RuntimeError("the browser ended before it could be driven")
