"""Sends requests to svc's servers. Each call sends one request, and every failure is raised as an SvcError."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ConfigDict, TypeAdapter

DEFAULT_URL = "http://localhost:8000"
#: In seconds. It is long because a create or resume may wait for capacity.
DEFAULT_TIMEOUT = 180.0
MAX_MESSAGE_CHARS = 2_000


class SvcError(Exception):
    """Raised when a server refuses a request or does not answer.

    ``name`` is the failure's name (``SANDBOX_NOT_FOUND``, ``TOO_MANY_REQUESTS``, ``SERVER_UNREACHABLE`` …), ``status`` the HTTP status
    (0 without an answer), ``retry_after`` the seconds that the server asked to wait, if any.
    """

    def __init__(self, name: str, message: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
        self.status = status
        self.retry_after = retry_after


class Model(BaseModel):
    """The base of all answers. Members that a newer server adds are kept unchanged."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


def segment(text: str) -> str:
    """Quotes text as one segment of a path. Raises ValueError for an empty text, which would address another route."""
    if text == "":
        raise ValueError("expected an id, got an empty text")
    return quote(text, safe="")


def failure_of(response: httpx.Response) -> SvcError:
    """Converts an error response into an SvcError. A response that is not svc's own keeps its text as the message."""
    try:
        said = response.json()
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    message = str(said.get("message") or said.get("error") or response.text[:MAX_MESSAGE_CHARS] or response.reason_phrase)
    name = str(said.get("error_code") or f"HTTP_{response.status_code}")
    wait = response.headers.get("retry-after", "")
    return SvcError(name, message, response.status_code, float(wait) if wait.isdigit() else None)


def lost(error: httpx.HTTPError, base_url: str) -> SvcError:
    """Converts a connection error into an SvcError: TIMED_OUT or SERVER_UNREACHABLE."""
    name = "TIMED_OUT" if isinstance(error, httpx.TimeoutException) else "SERVER_UNREACHABLE"
    return SvcError(name, f"{base_url}: {error or type(error).__name__}")


def read(response: httpx.Response, answer: Any) -> Any:
    """Validates a response and returns it as `answer`. Raises SvcError for a refusal; INTERNAL if the response has another shape."""
    if response.status_code >= 300:
        raise failure_of(response)
    if answer is None:
        return None
    try:
        return TypeAdapter(answer).validate_json(response.content)
    except ValueError as error:
        raise SvcError("INTERNAL", f"the answer of {response.request.url} has another shape: {error}", response.status_code) from error


def _given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _request(query: Mapping[str, Any] | None, headers: Mapping[str, Any] | None, body: Mapping[str, Any] | None, api_key: str | None) -> dict[str, Any]:
    sent = {name: str(_plain(value)) for name, value in _given(headers).items()}
    if api_key is not None:
        sent["X-API-Key"] = api_key
    made: dict[str, Any] = {"headers": sent}
    if query is not None:
        made["params"] = {name: _plain(value) for name, value in _given(query).items()}
    if body is not None:
        made["json"] = _given(body)
    return made


def key_of(api_key: str | None) -> str:
    """Returns the argument, else SVC_API_KEY or SDK_API_KEY of the environment. Raises SvcError UNAUTHENTICATED if there is none."""
    found = api_key or os.environ.get("SVC_API_KEY") or os.environ.get("SDK_API_KEY")
    if not found:
        raise SvcError("UNAUTHENTICATED", "no API key: pass api_key, or set SVC_API_KEY")
    return found


class Transport:
    """A client of one server with one connection pool. Close it, or use it in a ``with`` block."""

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._client = httpx.Client(timeout=timeout)

    def _call(self, method: str, path: str, *, query: Any = None, headers: Any = None, body: Any = None, answer: Any = None) -> Any:
        try:
            response = self._client.request(method, self.base_url + path, **_request(query, headers, body, self._api_key))
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        return read(response, answer)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTransport:
    """``Transport`` for asyncio. Close it with ``aclose``, or use it in an ``async with`` block."""

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._client = httpx.AsyncClient(timeout=timeout)

    async def _call(self, method: str, path: str, *, query: Any = None, headers: Any = None, body: Any = None, answer: Any = None) -> Any:
        try:
            response = await self._client.request(method, self.base_url + path, **_request(query, headers, body, self._api_key))
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        return read(response, answer)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
