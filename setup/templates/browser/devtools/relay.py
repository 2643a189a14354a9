"""Relays one connection to Chromium's DevTools, which refuses names of hosts other than localhost, and names itself in its answers.

An Origin passes unchanged: Chromium then refuses websockets of pages, which could otherwise drive the browser that shows them.
"""

import asyncio
import json
from http import HTTPStatus

CONNECT_SECONDS = 10
BLOCK_BYTES = 64 * 1024
OWN_HOST = "localhost"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chromium_port: int) -> None:
    try:
        await relay(reader, writer, chromium_port)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        pass
    finally:
        writer.close()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chromium_port: int) -> None:
    start, headers = parse(await reader.readuntil(b"\r\n\r\n"))
    method, target, version = start.split(" ")
    host = value(headers, "host") or OWN_HOST
    is_websocket = (value(headers, "upgrade") or "").lower() == "websocket"
    scheme = "wss" if value(headers, "x-forwarded-proto") == "https" else "ws"
    try:
        if is_websocket and target in ("", "/"):
            target = await browser_target(chromium_port)
        upstream_reader, upstream = await connect(chromium_port)
    except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
        await refuse(writer, HTTPStatus.SERVICE_UNAVAILABLE, "Chromium does not run now; it starts again within seconds")
        return
    try:
        passed = [(name, each) for name, each in headers if name.lower() not in ("host", "connection")]
        passed += [("Host", OWN_HOST), ("Connection", "Upgrade" if is_websocket else "close")]
        upstream.write(written(f"{method} {target} {version}", passed))
        if is_websocket:
            await both_ways(reader, writer, upstream_reader, upstream)
        else:
            pump = asyncio.create_task(copy(reader, upstream))
            try:
                await answer(upstream_reader, writer, scheme, host)
            finally:
                pump.cancel()
    finally:
        upstream.close()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_SECONDS)


async def browser_target(port: int) -> str:
    """Returns the path of the browser's own websocket, which has another id after each start."""
    reader, writer = await connect(port)
    try:
        writer.write(written("GET /json/version HTTP/1.1", [("Host", OWN_HOST)]))
        _, headers = parse(await reader.readuntil(b"\r\n\r\n"))
        body = json.loads(await reader.readexactly(int(value(headers, "content-length") or 0)))
        return "/" + body["webSocketDebuggerUrl"].split("/", 3)[3]
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scheme: str, host: str) -> None:
    """Passes an answer on, in which Chromium's websockets have the address by which the client reached this server."""
    start, headers = parse(await reader.readuntil(b"\r\n\r\n"))
    length = value(headers, "content-length")
    body = await (reader.read() if length is None else reader.readexactly(int(length)))
    if "json" in (value(headers, "content-type") or ""):
        body = body.replace(f"ws://{OWN_HOST}/".encode(), f"{scheme}://{host}/".encode())
        body = body.replace(f"ws={OWN_HOST}/".encode(), f"{scheme}={host}/".encode())
    kept = [(name, each) for name, each in headers if name.lower() not in ("content-length", "connection")]
    writer.write(written(start, [*kept, ("Content-Length", str(len(body))), ("Connection", "close")]) + body)
    await writer.drain()


async def refuse(writer: asyncio.StreamWriter, status: HTTPStatus, why: str) -> None:
    body = json.dumps({"message": why}).encode()
    headers = [("Content-Type", "application/json"), ("Retry-After", "1"), ("Content-Length", str(len(body))), ("Connection", "close")]
    writer.write(written(f"HTTP/1.1 {status.value} {status.phrase}", headers) + body)
    await writer.drain()


async def both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other_reader: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
    """Copies until either side ends, because a websocket whose one direction has ended is of no use."""
    copies = [asyncio.create_task(copy(reader, other)), asyncio.create_task(copy(other_reader, writer))]
    _, pending = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    for each in pending:
        each.cancel()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while block := await reader.read(BLOCK_BYTES):
            writer.write(block)
            await writer.drain()
    except ConnectionError:
        pass


def parse(head: bytes) -> tuple[str, list[tuple[str, str]]]:
    start, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = [line.split(":", 1) for line in lines]
    return start, [(name, text.strip()) for name, text in pairs]


def written(start: str, headers: list[tuple[str, str]]) -> bytes:
    return "\r\n".join([start, *(f"{name}: {text}" for name, text in headers), "", ""]).encode("latin-1")


def value(headers: list[tuple[str, str]], name: str) -> str | None:
    return next((text for each, text in headers if each.lower() == name), None)
