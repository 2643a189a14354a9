"""Jupyter's messages: those that run code, and those that a kernel gives while it runs."""

import hmac
import json

from jupyter_client.session import Session


def execute_request(session: Session, code: str, silent: bool) -> tuple[str, list[bytes]]:
    """Returns the id of the request, by which its output is known, and the frames to send."""
    content = {"code": code, "silent": silent, "store_history": not silent, "user_expressions": {}, "allow_stdin": False, "stop_on_error": False}
    return _request(session, "execute_request", content)


def info_request(session: Session) -> tuple[str, list[bytes]]:
    return _request(session, "kernel_info_request", {})


def _request(session: Session, kind: str, content: dict) -> tuple[str, list[bytes]]:
    message = session.msg(kind, content)
    return message["msg_id"], session.serialize(message)


def read_output(session: Session, frames: list[bytes]) -> tuple[str, dict] | None:
    """Returns the id of the request that a message belongs to, and the message; None if it belongs to none, or if its signature is wrong."""
    _, (signature, *parts) = session.feed_identities(frames)
    header, parent, _, content = parts[:4]
    request = json.loads(parent).get("msg_id")
    if request is None or not hmac.compare_digest(session.sign(parts[:4]), signature):
        return None
    return request, {"msg_type": json.loads(header)["msg_type"], "content": json.loads(content)}
