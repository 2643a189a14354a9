"""Drives the unmodified E2B Python SDK over TLS: its API and its streams, and a command whose sandbox is killed."""

import json
import threading

from e2b import Sandbox

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
print(json.dumps(said))
