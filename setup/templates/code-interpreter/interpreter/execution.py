"""One piece of code that runs: turns the kernel's messages into the lines that clients read."""

import asyncio
import json
import time

# Output that a slow client has not read yet is kept up to this size; more is left out, with a remark. A single message may be larger.
# Results have as much again: a program that printed too much must not lose its result.
MAX_UNREAD_BYTES = 32 << 20
# Output waits so long for what follows it, and goes to the client together with it: most code has ended by then.
LINGER_SECONDS = 0.01
LINGER_BYTES = 64 << 10
FORMS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    # The value of the last expression, where a kernel does not tell it from what is shown (tslab-hook.cjs).
    "text/x-svc-result": "text",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


class Execution:
    def __init__(self, on_end):
        self._on_end = on_end
        self._unread: list[dict] = []
        self._unread_bytes = 0
        self._unread_result_bytes = 0
        self._left_out_bytes = 0
        self._news = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._end = asyncio.Event()
        self._change = asyncio.Event()
        self.is_cancelled = False
        self.has_failed = False

    @property
    def is_over(self) -> bool:
        return self._end.is_set()

    def cancel(self):
        """Asks the context to interrupt the code, unless it has ended."""
        self.is_cancelled = True
        self._change.set()

    async def ended(self):
        await self._end.wait()

    async def changed(self, seconds: float):
        """Waits until the code has ended or is cancelled, or for this time."""
        try:
            await asyncio.wait_for(self._change.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._change.clear()

    def add(self, message: dict, size: int = 0):
        unread = self._unread_result_bytes if message["type"] == "result" else self._unread_bytes
        if unread > 0 and unread + size > MAX_UNREAD_BYTES:
            self._left_out_bytes += size
            return
        if message["type"] == "error":
            self.has_failed = True
        if message["type"] in ("stdout", "stderr"):
            message["timestamp"] = time.time_ns()
        self._unread.append(message)
        if message["type"] == "result":
            self._unread_result_bytes += size
        else:
            self._unread_bytes += size
        if self._unread_bytes + self._unread_result_bytes > LINGER_BYTES:
            self._news.set()
        elif self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._news.set)

    def die(self, name: str, reason: str):
        if self.is_over:
            return
        self.add({"type": "error", "name": name, "value": reason, "traceback": f"{name}: {reason}"})
        self.add({"type": "unexpected_end_of_execution"})
        self._finish()

    def take(self, message: dict):
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                text = content["text"]
                self.add({"type": content["name"], "text": text}, len(text))
            case "display_data" if "application/x-svc-error" in content["data"]:
                error = json.loads(content["data"]["application/x-svc-error"])
                self.add({"type": "error", **{name: str(error.get(name, "")) for name in ("name", "value", "traceback")}})
            case "execute_result" | "display_data":
                line = result(content["data"])
                line["is_main_result"] = message["msg_type"] == "execute_result" or "text/x-svc-result" in content["data"]
                size = sum(len(value) for value in content["data"].values() if isinstance(value, str))
                self.add(line, size)
            case "error":
                traceback = "\n".join(content["traceback"])
                self.add({"type": "error", "name": content["ename"], "value": content["evalue"], "traceback": traceback})
            case "execute_input":
                self.add({"type": "number_of_executions", "execution_count": content["execution_count"]})
            case "status" if content["execution_state"] == "idle" and not self.is_over:
                self.add({"type": "end_of_execution"})
                self._finish()

    async def batches(self):
        """Gives the messages as they come, several at a time where they come fast."""
        is_last = False
        while not is_last:
            await self._news.wait()
            self._stop_lingering()
            self._news.clear()
            is_last = self.is_over
            yield self._batch()

    def _batch(self) -> list[dict]:
        batch, self._unread = self._unread, []
        self._unread_bytes = self._unread_result_bytes = 0
        if self._left_out_bytes > 0:
            at = len(batch) - 1 if batch and batch[-1]["type"].endswith("end_of_execution") else len(batch)
            batch.insert(at, self._remark())
        return batch

    def _stop_lingering(self):
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _remark(self) -> dict:
        text = f"\n[… {self._left_out_bytes} bytes left out: the code gives them faster than they are read …]\n"
        self._left_out_bytes = 0
        return {"type": "stderr", "text": text, "timestamp": time.time_ns()}

    def _finish(self):
        self._end.set()
        self._change.set()
        self._news.set()
        self._on_end()


def result(data: dict) -> dict:
    """Forms with a name of their own are members; all others are in `extra` under their MIME type."""
    line = {"type": "result"}
    extra = {}
    for mime, value in data.items():
        if mime in FORMS:
            line[FORMS[mime]] = "".join(value) if isinstance(value, list) and mime.startswith("text/") else value
        else:
            extra[mime] = value
    # A string's repr is not what people want to read.
    text = line.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        line["text"] = text[1:-1]
    if extra:
        # The SDK for Python reads `extra`, the one for JavaScript the other members.
        line |= {**extra, "extra": extra}
    return line
