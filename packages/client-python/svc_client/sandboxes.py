"""A client of the sandbox platform: every operation, commands and files in sandboxes, whole lists, and lifecycle events."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx

from ._generated import AsyncSandboxOperations, SandboxOperations
from ._http import DEFAULT_TIMEOUT, DEFAULT_URL, SvcError, failure_of, key_of, lost

ENVD_PORT = 49983
#: The interval, in seconds, at which envd sends a keepalive on a silent stream.
KEEPALIVE_SECONDS = 50
#: The maximum length of one message of a stream, in bytes.
MAX_MESSAGE_BYTES = 1 << 20
#: The number of bytes that ``run`` keeps of stdout and of stderr; further output is counted and dropped.
MAX_OUTPUT_BYTES = 16 << 20
_HEADER = struct.Struct(">BI")
_LAST = 0x02


@dataclass
class CommandResult:
    """The result of a command. ``truncated`` is the number of output bytes that were dropped."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: int = 0


def _access(sandbox: Any) -> tuple[str, str | None]:
    if isinstance(sandbox, str):
        return sandbox, None
    return sandbox.sandbox_id, getattr(sandbox, "envd_access_token", None)


def _envd_headers(sandbox: Any) -> dict[str, str]:
    sandbox_id, token = _access(sandbox)
    headers = {"x-svc-sandbox-id": sandbox_id, "x-svc-target-port": str(ENVD_PORT)}
    return headers if token is None else {**headers, "X-Access-Token": token}


def _user_headers(user: str | None) -> dict[str, str]:
    return {} if user is None else {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()}


def _start(sandbox: Any, command: str, cwd: str | None, envs: Mapping[str, str] | None, user: str | None, timeout: float | None) -> dict[str, Any]:
    process = {"cmd": "/bin/bash", "args": ["-l", "-c", command], "envs": dict(envs or {})}
    if cwd is not None:
        process["cwd"] = cwd
    message = json.dumps({"process": process, "stdin": False}).encode()
    headers = {
        **_envd_headers(sandbox),
        **_user_headers(user),
        "content-type": "application/connect+json",
        "connect-protocol-version": "1",
        "keepalive-ping-interval": str(KEEPALIVE_SECONDS),
    }
    if timeout is not None:
        headers["connect-timeout-ms"] = str(int(timeout * 1000))
    return {"headers": headers, "content": _HEADER.pack(0, len(message)) + message}


class _Frames:
    """Splits a stream's bytes into messages, and keeps at most one incomplete message in memory."""

    def __init__(self) -> None:
        self._pending = b""
        self.ended = False

    def take(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._pending += data
        while len(self._pending) >= _HEADER.size:
            flags, length = _HEADER.unpack_from(self._pending)
            if length > MAX_MESSAGE_BYTES:
                raise SvcError("INTERNAL", f"a message of {length} bytes; the maximum is {MAX_MESSAGE_BYTES}")
            if len(self._pending) < _HEADER.size + length:
                return
            message = json.loads(self._pending[_HEADER.size : _HEADER.size + length])
            self._pending = self._pending[_HEADER.size + length :]
            if flags & _LAST:
                error = message.get("error")
                if error is not None:
                    raise SvcError(str(error.get("code", "INTERNAL")).upper(), str(error.get("message", "")))
                self.ended = True
                return
            yield message


class _Collected:
    """Collects a command's output and exit code from the messages of its stream."""

    def __init__(self) -> None:
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._dropped = 0
        self._end: dict[str, Any] | None = None

    def add(self, message: dict[str, Any]) -> None:
        event = message.get("event", {})
        for stream, text in event.get("data", {}).items():
            kept = self._kept.get(stream)
            if kept is None:
                continue
            data = base64.b64decode(text)
            room = MAX_OUTPUT_BYTES - len(kept)
            kept += data[: max(room, 0)]
            self._dropped += max(len(data) - max(room, 0), 0)
        self._end = event.get("end", self._end)

    def result(self) -> CommandResult:
        if self._end is None:
            raise SvcError("SERVER_UNREACHABLE", "the connection ended before the command did")
        code = int(self._end.get("exitCode", 0))
        return CommandResult(code, bytes(self._kept["stdout"]), bytes(self._kept["stderr"]), self._dropped)


def _file_url(base_url: str, path: str, user: str | None) -> str:
    return f"{base_url}/proxy/files?" + urlencode({"path": path, **({} if user is None else {"username": user})})


def _events_request(after: int | None, sandbox_id: str | None) -> dict[str, Any]:
    query = {**({} if after is None else {"after": after}), **({} if sandbox_id is None else {"sandboxID": sandbox_id})}
    return {"params": query, "headers": {"accept": "text/event-stream"}, "timeout": httpx.Timeout(DEFAULT_TIMEOUT, read=None)}


def _event(line: str) -> dict[str, Any] | None:
    return json.loads(line[5:]) if line.startswith("data:") else None


class Sandboxes(SandboxOperations):
    """A client of one deployment. Without ``api_key`` it uses SVC_API_KEY of the environment. Every method raises SvcError."""

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        super().__init__(base_url, key_of(api_key), timeout)

    def iter_sandboxes(self, **filters: Any) -> Iterator[Any]:
        """Yields every sandbox that matches the filters of ``list_sandboxes``, and reads page after page."""
        token: str | None = None
        while True:
            page, token = self._page({**filters, "next_token": token})
            yield from page
            if token is None:
                return

    def _page(self, filters: dict[str, Any]) -> tuple[list[Any], str | None]:
        found: list[str | None] = []
        hook = lambda response: found.append(response.headers.get("x-next-token"))  # noqa: E731
        self._client.event_hooks["response"].append(hook)
        try:
            page = self.list_sandboxes(**filters)
        finally:
            self._client.event_hooks["response"].remove(hook)
        return page, (found[-1] or None) if found else None

    def run(
        self,
        sandbox: Any,
        command: str,
        *,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = 60.0,
    ) -> CommandResult:
        """Runs a command with a login shell and waits for its end. ``sandbox`` is an answer of create, get or connect.

        ``timeout`` is in seconds; None waits for as long as the sandbox lives.
        """
        frames, collected = _Frames(), _Collected()
        request = _start(sandbox, command, cwd, envs, user, timeout)
        try:
            with self._client.stream("POST", f"{self.base_url}/proxy/process.Process/Start", timeout=httpx.Timeout(DEFAULT_TIMEOUT), **request) as response:
                if response.status_code != 200:
                    response.read()
                    raise failure_of(response)
                for data in response.iter_bytes():
                    for message in frames.take(data):
                        collected.add(message)
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        return collected.result()

    def write_file(self, sandbox: Any, path: str, data: bytes, *, user: str | None = None) -> None:
        """Writes a file, and creates missing folders of its path."""
        headers = {**_envd_headers(sandbox), "content-type": "application/octet-stream"}
        try:
            response = self._client.post(_file_url(self.base_url, path, user), headers=headers, content=data)
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        if response.status_code >= 300:
            raise failure_of(response)

    def read_file(self, sandbox: Any, path: str, *, user: str | None = None) -> bytes:
        """Returns the content of a file, all of it in memory."""
        try:
            response = self._client.get(_file_url(self.base_url, path, user), headers=_envd_headers(sandbox))
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        if response.status_code >= 300:
            raise failure_of(response)
        return response.content

    def events(self, *, after: int | None = None, sandbox_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Yields lifecycle events from now on, or those after the id ``after``, until the connection ends.

        To continue, pass the id of the last event as ``after``.
        """
        try:
            request = _events_request(after, sandbox_id)
            request["headers"]["X-API-Key"] = self._api_key or ""
            with self._client.stream("GET", f"{self.base_url}/events", **request) as response:
                if response.status_code != 200:
                    response.read()
                    raise failure_of(response)
                for line in response.iter_lines():
                    event = _event(line)
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error


class AsyncSandboxes(AsyncSandboxOperations):
    """``Sandboxes`` for asyncio."""

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        super().__init__(base_url, key_of(api_key), timeout)

    async def run(
        self,
        sandbox: Any,
        command: str,
        *,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = 60.0,
    ) -> CommandResult:
        """As ``Sandboxes.run``."""
        frames, collected = _Frames(), _Collected()
        request = _start(sandbox, command, cwd, envs, user, timeout)
        try:
            async with self._client.stream("POST", f"{self.base_url}/proxy/process.Process/Start", timeout=httpx.Timeout(DEFAULT_TIMEOUT), **request) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise failure_of(response)
                async for data in response.aiter_bytes():
                    for message in frames.take(data):
                        collected.add(message)
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        return collected.result()

    async def write_file(self, sandbox: Any, path: str, data: bytes, *, user: str | None = None) -> None:
        """As ``Sandboxes.write_file``."""
        headers = {**_envd_headers(sandbox), "content-type": "application/octet-stream"}
        try:
            response = await self._client.post(_file_url(self.base_url, path, user), headers=headers, content=data)
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        if response.status_code >= 300:
            raise failure_of(response)

    async def read_file(self, sandbox: Any, path: str, *, user: str | None = None) -> bytes:
        """As ``Sandboxes.read_file``."""
        try:
            response = await self._client.get(_file_url(self.base_url, path, user), headers=_envd_headers(sandbox))
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        if response.status_code >= 300:
            raise failure_of(response)
        return response.content

    async def events(self, *, after: int | None = None, sandbox_id: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """As ``Sandboxes.events``."""
        try:
            request = _events_request(after, sandbox_id)
            request["headers"]["X-API-Key"] = self._api_key or ""
            async with self._client.stream("GET", f"{self.base_url}/events", **request) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise failure_of(response)
                async for line in response.aiter_lines():
                    event = _event(line)
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
