"""A client of the cache store's REST service. For zero-copy access use Mooncake's client, or @svc/store-client."""

from __future__ import annotations

from typing import Any

import httpx

from ._http import Transport, failure_of, lost, segment

DEFAULT_URL = "http://localhost:8080"
#: In seconds.
DEFAULT_TIMEOUT = 30.0


class Store(Transport):
    """A client of one REST service. ``token`` is needed if ``store_service.access_file`` is set there. Every method raises SvcError."""

    def __init__(self, base_url: str = DEFAULT_URL, token: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        super().__init__(base_url, None, timeout)
        if token is not None:
            self._client.headers["Authorization"] = f"Bearer {token}"

    def put(self, key: str, value: str) -> None:
        """Stores a text under a key. A key that already exists keeps its value."""
        self._call("PUT", "/api/put", body={"key": key, "value": value})

    def get(self, key: str) -> bytes | None:
        """Returns the value of a key; None if the key is absent."""
        try:
            response = self._client.get(f"{self.base_url}/api/get/{segment(key)}")
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        if response.status_code == 404:
            return None
        if response.status_code >= 300:
            raise failure_of(response)
        return response.content

    def exists(self, key: str) -> bool:
        return bool(self._call("GET", f"/api/exist/{segment(key)}", answer=dict[str, Any])["exists"])

    def remove(self, key: str) -> bool:
        """Removes a key, and returns False if it was absent. Raises SvcError with status 409 while a reader has a lease on it."""
        try:
            response = self._client.delete(f"{self.base_url}/api/remove/{segment(key)}")
        except httpx.HTTPError as error:
            raise lost(error, self.base_url) from error
        if response.status_code == 404:
            return False
        if response.status_code >= 300:
            raise failure_of(response)
        return True
