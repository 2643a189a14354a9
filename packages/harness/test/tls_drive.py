"""Drives the unmodified E2B Python SDK over TLS: its API and its streams, and commands whose sandbox is killed, by both of its clients."""

import asyncio
import json
import threading

from e2b import AsyncSandbox, Sandbox

said = {}
sandbox = Sandbox.create("base", timeout=120)
said["run"] = sandbox.commands.run("echo $((6*7))").stdout
sandbox.files.write("note", "kept " * 100_000)
said["file"] = len(sandbox.files.read("note"))
said["host"] = sandbox.get_host(8000)

started = threading.Event()
outcome = {}


def follow():
    handle = sandbox.commands.run("echo begun; sleep 600", background=True)
    try:
        handle.wait(on_stdout=lambda _: started.set())
        outcome["end"] = "clean"
    except Exception as error:
        outcome["end"] = type(error).__name__
        outcome["text"] = str(error)


follower = threading.Thread(target=follow)
follower.start()
assert started.wait(60), "the command did not begin"
sandbox.kill()
follower.join(60)
said.update(outcome)
said["running"] = sandbox.is_running()


async def follow_async():
    """Returns how the asynchronous client reports a command whose sandbox is killed."""
    other = await AsyncSandbox.create("base", timeout=120)
    begun = asyncio.Event()
    handle = await other.commands.run("echo begun; sleep 600", background=True, on_stdout=lambda _: begun.set())
    waiting = asyncio.create_task(handle.wait())
    await asyncio.wait_for(begun.wait(), 60)
    await other.kill()
    try:
        await asyncio.wait_for(waiting, 60)
        return "clean", ""
    except Exception as error:
        return type(error).__name__, str(error)


said["end_async"], said["text_async"] = asyncio.run(follow_async())
print(json.dumps(said))
