"""Asks a worker of Connect, Kafka's or ours."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

from waiting import wait_until

TIMEOUT_S = 100.0


class RestClient:
    """Asks a worker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers = {"Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def log_in(self, user: str, password: str) -> None:
        """Sends user and password with each request from now on."""
        self.headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    def states(self, name: str) -> list[str]:
        """The states of a connector and its tasks."""
        status, found = self.ask("GET", f"/connectors/{name}/status")
        if status != 200:
            return []
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]

    def wait_states(self, name: str, *states: str) -> None:
        """Waits until a connector and its tasks have these states."""
        wait_until(
            lambda: self.states(name) == list(states),
            TIMEOUT_S,
            describe=lambda: str(self.ask("GET", f"/connectors/{name}/status")),
        )
