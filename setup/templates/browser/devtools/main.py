"""Runs Chromium, again when it ends, and serves its DevTools protocol on port 9222 to clients that reach the sandbox by any host name."""

import asyncio
import signal
from pathlib import Path

from relay import serve

PORT = 9222
CHROMIUM_PORT = 9223
# A browser that ends at once must not be started in a loop without a pause.
AGAIN_SECONDS = 1
HEAD_BYTES = 64 * 1024

PROFILE = Path("/tmp/.svc-browser")

COMMAND = [
    "/usr/bin/chromium",
    "--headless",
    f"--remote-debugging-port={CHROMIUM_PORT}",
    f"--user-data-dir={PROFILE}",
    "--hide-scrollbars",
    "--mute-audio",
    "--window-size=1280,800",
    "about:blank",
]


async def run_chromium() -> None:
    while True:
        # The lock of a browser that was killed names the host on which it ran, which is the one that built the template: it would stay for ever.
        for lock in PROFILE.glob("Singleton*"):
            lock.unlink()
        browser = await asyncio.create_subprocess_exec(*COMMAND, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
        await browser.wait()
        await asyncio.sleep(AGAIN_SECONDS)


async def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, asyncio.current_task().cancel)
    server = await asyncio.start_server(lambda *streams: serve(*streams, CHROMIUM_PORT), None, PORT, limit=HEAD_BYTES)
    async with server:
        await run_chromium()


try:
    asyncio.run(main())
except asyncio.CancelledError:
    pass
