"""One step of a comparison, as data.

A body has symbols in the place of values that only the broker knows, or that differ between runs:

    "~t"                                      a name of this run
    {"ref": ["pid", "p0"]}                    the producer id that slot p0 has; also "epoch" (with a delta)
    {"ref": ["member", "m0"]}                 the member id of slot m0, "" before it has one; also "generation"
    {"ref": ["topic_id", "~t"]}               the id of a topic, a random one if it does not exist
    {"batch": {...}}                          records, see `batches`
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Operation:
    """`lane` is the connection that it goes over: a request that may be parked has one of its own.

    `slot` is the producer or member that learns from the answer. `cut` removes so many bytes from the end of the
    request, or appends them if it is negative. `pause_s` is waited before. `user` has logged in on the connection; if
    it is empty, the connection has no login.
    """

    api: str
    version: int
    body: dict[str, Any]
    lane: str = MAIN
    slot: str = ""
    cut: int = 0
    pause_s: float = 0.0
    user: str = ""

    @property
    def connection(self) -> str:
        """The name of the connection that it goes over."""
        return f"{self.lane} of {self.user}" if self.user else self.lane

    def to_json(self) -> str:
        defaults = {"lane": MAIN, "slot": "", "cut": 0, "pause_s": 0.0, "user": ""}
        return json.dumps(
            {name: value for name, value in asdict(self).items() if defaults.get(name) != value}
        )

    @classmethod
    def from_json(cls, line: str) -> Operation:
        return cls(**json.loads(line))
