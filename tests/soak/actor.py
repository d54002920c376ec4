"""One kind of load, in rounds: each round does something and checks the result.

Keeps true: a round keeps nothing for the next one, so that an hour costs the driver no more memory than a minute. An
exception of a client is a fault like any other.
"""

from __future__ import annotations

import threading
import time
import traceback
from abc import ABC, abstractmethod

FAULTS_KEPT = 50


class Actor(ABC):
    name: str

    @abstractmethod
    def round(self, number: int, seconds: float) -> list[str]:
        """About `seconds` of load; returns every anomaly, as text."""

    def close(self) -> None:  # noqa: B027 most actors hold nothing between rounds
        pass


class Player(threading.Thread):
    """Runs the rounds of one actor until it is stopped; a round starts at most every `seconds`."""

    def __init__(self, actor: Actor, seconds: float) -> None:
        super().__init__(name=actor.name, daemon=True)
        self._actor, self._seconds = actor, seconds
        self._stopping = threading.Event()
        self.rounds = 0
        self.faults: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._keep(self._play())
            self.rounds += 1
            self._stopping.wait(max(0.0, began + self._seconds - time.monotonic()))
        self._actor.close()

    def _play(self) -> list[str]:
        try:
            return self._actor.round(self.rounds, self._seconds)
        except Exception:
            return [traceback.format_exc()]

    def _keep(self, faults: list[str]) -> None:
        when = time.strftime("%H:%M:%S")
        named = [f"{when} {self.name}, round {self.rounds}: {fault}" for fault in faults]
        self.faults += named[: FAULTS_KEPT - len(self.faults)]

    def begin_no_more(self) -> None:
        self._stopping.set()

    def wait_ended(self, timeout_s: float) -> None:
        self.join(timeout_s)
        if self.is_alive():
            self._keep([f"the round did not end within {timeout_s} s"])


def passing(seconds: float, per_second: float) -> list[float]:
    """The moments at which a steady load of this rate acts."""
    began = time.monotonic()
    return [began + number / per_second for number in range(max(1, int(seconds * per_second)))]


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
