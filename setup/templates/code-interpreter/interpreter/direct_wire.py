"""The Unix sockets of a Python kernel, spoken to without libzmq: its own thread would be woken for each message, which costs much in a sandbox."""

import asyncio
import socket
from collections.abc import Callable

from messages import execute_request, info_request, read_output
from zmtp import GREETING, SUBSCRIBE_TO_ALL, Decoder, encode, is_ready, ready

RECEIVE_BYTES = 256 << 10
RETRY_SECONDS = 0.02
# Output of a kernel is lost until it has read the subscription, so it is asked again.
ASK_AGAIN_SECONDS = 0.25


class DirectWire:
    """`on_message` gets each output message that belongs to a request."""

    def __init__(self, session, shell: socket.socket, output: socket.socket, on_message: Callable[[str, dict], None]):
        self._session = session
        self._shell = shell
        self._output = output
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._asked: set[str] = set()
        self._answers = asyncio.Event()
        output.sendall(SUBSCRIBE_TO_ALL)
        self._loop.add_reader(output, self._read)

    @classmethod
    async def open(cls, manager, on_message: Callable[[str, dict], None], seconds: float) -> "DirectWire":
        """Returns when the kernel answers. @raises RuntimeError if it does not."""
        opened = []
        try:
            async with asyncio.timeout(seconds):
                for port, socket_type in ((manager.shell_port, b"DEALER"), (manager.iopub_port, b"SUB")):
                    opened.append(await _connect(manager, port))
                    await _shake_hands(opened[-1], socket_type)
                wire = cls(manager.session, *opened, on_message)
                opened = [wire]
                await wire._answered(manager)
                return wire
        except BaseException as error:
            for each in opened:
                each.close()
            if isinstance(error, TimeoutError):
                raise RuntimeError("it does not answer") from error
            raise

    def execute(self, code: str, silent: bool) -> str:
        """Returns the id of the request, by which its output is known."""
        request, frames = execute_request(self._session, code, silent)
        self._request(frames)
        return request

    def close(self):
        self._loop.remove_reader(self._output)
        self._loop.remove_writer(self._shell)
        self._shell.close()
        self._output.close()

    async def _answered(self, manager):
        while not self._answers.is_set():
            await _check_alive(manager)
            request, frames = info_request(self._session)
            self._asked.add(request)
            self._request(frames)
            try:
                await asyncio.wait_for(self._answers.wait(), ASK_AGAIN_SECONDS)
            except asyncio.TimeoutError:
                pass
        self._asked.clear()

    def _request(self, frames: list[bytes]):
        self._discard_replies()
        is_waiting = len(self._unsent) > 0
        self._unsent += encode(frames)
        if not is_waiting:
            self._send()

    def _discard_replies(self):
        """Everything that clients want comes as output, but unread replies would pile up."""
        try:
            while len(self._shell.recv(RECEIVE_BYTES)) == RECEIVE_BYTES:
                pass
        except OSError:
            pass

    def _send(self):
        try:
            del self._unsent[: self._shell.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # The kernel has ended, which its context notices by itself.
            self._unsent.clear()
        if self._unsent:
            self._loop.add_writer(self._shell, self._send)
        else:
            self._loop.remove_writer(self._shell)

    def _read(self):
        try:
            data = self._output.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._output)
            return
        for frames in self._decoder.feed(data):
            output = read_output(self._session, frames)
            if output is None:
                continue
            if output[0] in self._asked:
                self._answers.set()
            else:
                self._on_message(*output)


async def _connect(manager, port: int) -> socket.socket:
    """The kernel makes its sockets some time after it was started."""
    while True:
        each = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            each.connect(f"{manager.ip}-{port}")
            return each
        except OSError:
            each.close()
        await _check_alive(manager)
        await asyncio.sleep(RETRY_SECONDS)


async def _shake_hands(each: socket.socket, socket_type: bytes):
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(each, GREETING + ready(socket_type))
    answer = b""
    while not is_ready(answer):
        data = await loop.sock_recv(each, RECEIVE_BYTES)
        if not data:
            raise RuntimeError("it closed a socket")
        answer += data


async def _check_alive(manager):
    if not await manager.is_alive():
        raise RuntimeError("it ended at once")
