"""A client of the cache indexer, which knows which engine has a prompt's prefix in its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._http import Transport

DEFAULT_URL = "http://localhost:13333"
#: In seconds. It is short because a router cannot wait long for an answer.
DEFAULT_TIMEOUT = 5.0


class Index(Transport):
    """A client of one indexer. ``api_key`` is needed to register if ``indexer.api_key`` is set there. Every method raises SvcError."""

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        super().__init__(base_url, api_key, timeout)

    def query(self, token_ids: Sequence[int], *, model: str, block_size: int, **scope: Any) -> dict[str, Any]:
        """Returns the cached prefix per engine, by tokens: the answer of POST /query.

        ``scope``: tenant_id, instance_id, lora_name, cache_salt, freshness.
        """
        body = {"model": model, "block_size": block_size, "token_ids": list(token_ids), **scope}
        return self._call("POST", "/query", body=body, answer=dict[str, Any])

    def query_by_hash(self, seq_hashes: Sequence[int], *, model: str, block_size: int, **scope: Any) -> dict[str, Any]:
        """Returns the cached prefix per engine, by the 64-bit rolling hashes of complete blocks: the answer of POST /query_by_hash."""
        body = {"model": model, "block_size": block_size, "seq_hashes": [str(each) for each in seq_hashes], **scope}
        return self._call("POST", "/query_by_hash", body=body, answer=dict[str, Any])

    def score(self, token_ids: Sequence[int], *, model: str, **more: Any) -> dict[str, Any]:
        """Returns the expected seconds of prefill per candidate: the answer of POST /score.

        ``more``: candidates, tenant_id, lora_name, cache_salt and other members of its request.
        """
        body = {"model": model, "token_ids": list(token_ids), **more}
        return self._call("POST", "/score", body=body, answer=dict[str, Any])

    def register(self, **registration: Any) -> dict[str, Any]:
        """Registers one publisher. ``registration``: endpoint, type, modelname, instance_id, block_size, dp_rank, and others of POST /register."""
        return self._call("POST", "/register", body=registration, answer=dict[str, Any])

    def unregister(self, *, instance_id: str, dp_rank: int = 0, tenant_id: str | None = None) -> dict[str, Any]:
        """Removes a registration and its blocks from the index."""
        body = {"instance_id": instance_id, "dp_rank": dp_rank, "tenant_id": tenant_id}
        return self._call("POST", "/unregister", body=body, answer=dict[str, Any])

    def services(self) -> dict[str, Any]:
        """Returns the registrations with their freshness, and the indexer's diagnosis of each."""
        return self._call("GET", "/services", answer=dict[str, Any])
