"""What connectors that send requests to HTTP servers share: waits between attempts, and the beginning of an answer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

BUSY = frozenset((408, 425, 429, 502, 503, 504))
"""The statuses of a server that may take the same request later."""
_LONGEST_WAIT_S = 60.0
_TEXT_LENGTH = 300
"""What an error says of a server's answer at most."""
_ANSWER_BYTES = 65_536
"""So much of an answer is read, so that its connection can be used again."""


def wait_s(first_ms: int, failures: int, retry_after: str | None = None) -> float:
    """The wait after so many failures before this one: twice as long each time, at most a minute.

    Part of it is random: tasks that failed together do not come back together. `retry_after` is the server's header.
    """
    found = min(_LONGEST_WAIT_S, first_ms / 1000 * 2.0 ** min(failures, 10))
    if retry_after is not None and retry_after.isdigit():
        found = max(found, min(_LONGEST_WAIT_S, float(retry_after)))
    return found * (0.5 + random.random() / 2)


def beginning(answer: httpx2.Response) -> str:
    """What an answer says first. One that is long is not read to its end: its connection is closed then."""
    data = b""
    for piece in answer.iter_raw():
        data += piece
        if len(data) > _ANSWER_BYTES:
            break
    return first_words(data.decode(errors="replace"))


def first_words(text: str) -> str:
    """The beginning of a text, on one line."""
    return " ".join(text.split())[:_TEXT_LENGTH] or "no reason is given"
