"""The cache indexer: which engine already holds a prompt's prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._http import Transport

DEFAULT_URL = "http://localhost:13333"
#: Seconds; a router cannot wait long for an answer.
DEFAULT_TIMEOUT = 5.0


class Index(Transport):
    """One indexer. ``api_key`` is needed to register where ``indexer.api_key`` is set. Every method raises SvcError."""

    def __init__(self, base_url: str = DEFAULT_URL, api_key: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        super().__init__(base_url, api_key, timeout)

    def query(self, token_ids: Sequence[int], *, model: str, block_size: int, **scope: Any) -> dict[str, Any]:
        """Matches by tokens. ``scope``: tenant_id, instance_id, lora_name, cache_salt, freshness. The answer is that of POST /query."""
        body = {"model": model, "block_size": block_size, "token_ids": list(token_ids), **scope}
        return self._call("POST", "/query", body=body, answer=dict[str, Any])

    def query_by_hash(self, seq_hashes: Sequence[int], *, model: str, block_size: int, **scope: Any) -> dict[str, Any]:
        """Matches by the rolling hashes of complete blocks (64 bits each). The answer is that of POST /query_by_hash."""
        body = {"model": model, "block_size": block_size, "seq_hashes": [str(each) for each in seq_hashes], **scope}
        return self._call("POST", "/query_by_hash", body=body, answer=dict[str, Any])

    def score(self, token_ids: Sequence[int], *, model: str, **more: Any) -> dict[str, Any]:
        """Expected seconds of prefill per candidate. ``more``: candidates, tenant_id, lora_name, cache_salt and others of POST /score, whose answer it is."""
        body = {"model": model, "token_ids": list(token_ids), **more}
        return self._call("POST", "/score", body=body, answer=dict[str, Any])

    def register(self, **registration: Any) -> dict[str, Any]:
        """Registers one publisher: endpoint, type, modelname, instance_id, block_size, dp_rank; replay_endpoint and others as documented."""
        return self._call("POST", "/register", body=registration, answer=dict[str, Any])

    def unregister(self, *, instance_id: str, dp_rank: int = 0, tenant_id: str | None = None) -> dict[str, Any]:
        """Ends a registration and forgets its blocks."""
        body = {"instance_id": instance_id, "dp_rank": dp_rank, "tenant_id": tenant_id}
        return self._call("POST", "/unregister", body=body, answer=dict[str, Any])

    def services(self) -> dict[str, Any]:
        """Registrations with their freshness, and what the doctor says."""
        return self._call("GET", "/services", answer=dict[str, Any])
