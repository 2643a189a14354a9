"""Clients of svc: sandboxes, the cache index and the cache store, over HTTP."""

from ._http import SvcError
from .index import Index
from .sandboxes import AsyncSandboxes, CommandResult, Sandboxes
from .store import Store

__all__ = ["AsyncSandboxes", "CommandResult", "Index", "Sandboxes", "Store", "SvcError"]
