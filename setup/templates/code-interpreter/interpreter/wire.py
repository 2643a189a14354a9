"""A started kernel's sockets, read and written without asyncio's sockets of pyzmq, which wake the event loop several times for each message."""

import asyncio
from collections.abc import Callable

import zmq

from messages import execute_request, read_output

# After this many messages the reader lets the event loop do other work.
MAX_MESSAGES_AT_ONCE = 100


class Wire:
    """Takes over the channels of a client that is ready. `on_message` gets each output message that belongs to a request."""

    def __init__(self, client, on_message: Callable[[str, dict], None]):
        self._client = client
        self._session = client.session
        self._on_message = on_message
        self._shell = zmq.Socket.shadow(client.shell_channel.socket.underlying)
        self._output = zmq.Socket.shadow(client.iopub_channel.socket.underlying)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._loop.remove_reader(self._shell.FD)
        # This replaces the reader that pyzmq registered. The descriptor is ready once for several messages, so all are read each time.
        self._loop.add_reader(self._output.FD, self._read)
        self._loop.call_soon(self._read)

    def execute(self, code: str, silent: bool) -> str:
        """Returns the id of the request, by which its output is known."""
        # Everything that clients want comes as output, but unread replies would pile up.
        while self._receive(self._shell) is not None:
            pass
        request, frames = execute_request(self._session, code, silent)
        self._shell.send_multipart(frames)
        return request

    def close(self):
        self._is_closed = True
        self._loop.remove_reader(self._output.FD)
        self._client.stop_channels()

    def _read(self):
        for _ in range(MAX_MESSAGES_AT_ONCE):
            frames = None if self._is_closed else self._receive(self._output)
            if frames is None:
                return
            output = read_output(self._session, frames)
            if output is not None:
                self._on_message(*output)
        self._loop.call_soon(self._read)

    def _receive(self, socket: zmq.Socket) -> list[bytes] | None:
        try:
            return socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
