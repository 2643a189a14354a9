"""ZeroMQ's protocol on a stream (ZMTP 3.0, rfc.zeromq.org/spec/23), as far as a client without authentication needs it."""

MORE, LONG, COMMAND = 1, 2, 4
# Signature, version 3.0, mechanism, the role of a client, and filler.
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
# A publisher that reads this together with the greeting ends the connection, so it is sent once the publisher is ready.
SUBSCRIBE_TO_ALL = b"\x00\x01\x01"


def ready(socket_type: bytes) -> bytes:
    """Ends the handshake."""
    named = b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type + b"\x08Identity" + bytes(4)
    return _frame(COMMAND, b"\x05READY" + named)


def is_ready(answer: bytes) -> bool:
    """Says if the peer's greeting and its READY have come. @raises RuntimeError for another protocol."""
    head = len(GREETING)
    if len(answer) < head + 2:
        return False
    if answer[0] != 0xFF or answer[10] < 3 or answer[head] != COMMAND:
        raise RuntimeError("its socket does not speak ZMTP 3")
    # The peer sends nothing after it until it is asked, so the rest of the stream begins with a message.
    return len(answer) >= head + 2 + answer[head + 1]


def encode(parts: list[bytes]) -> bytes:
    """Returns one message of several parts."""
    return b"".join(_frame(MORE if at < len(parts) - 1 else 0, part) for at, part in enumerate(parts))


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | LONG,)) + len(body).to_bytes(8, "big") + body


class Decoder:
    """Cuts what follows the handshake into messages."""

    def __init__(self):
        self._buffer = bytearray()
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Returns the messages that end in this piece of the stream."""
        self._buffer += data
        messages = []
        at = 0
        while (frame := self._frame(at)) is not None:
            flags, begin, at = frame
            if flags & COMMAND:
                continue
            self._parts.append(bytes(memoryview(self._buffer)[begin:at]))
            if not flags & MORE:
                messages.append(self._parts)
                self._parts = []
        del self._buffer[:at]
        return messages

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """Returns flags, begin and end of the frame that begins here, if all of it has come."""
        size_bytes = 8 if len(self._buffer) > at and self._buffer[at] & LONG else 1
        begin = at + 1 + size_bytes
        if len(self._buffer) < begin:
            return None
        end = begin + int.from_bytes(self._buffer[at + 1 : begin], "big")
        return (self._buffer[at], begin, end) if len(self._buffer) >= end else None
