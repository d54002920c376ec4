"""The error that names the Apps which failed, as it passes from a worker through Spark's Java to the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from felice.dataclass import dataclass
from felice.pipelines.errors import PlainError

_MARK = "HostedAppsFailed: "
_LINE = re.compile(rf"{_MARK}(\{{.*\}})")


class HostedAppsFailed(PlainError):
    """Apps that failed. The text is a document, since Spark passes errors on as texts."""

    def __init__(self, incarnations: Sequence[str], error: str) -> None:
        super().__init__(json.dumps({"apps": list(incarnations), "error": error}))

    def __reduce__(self) -> tuple[type[HostedAppsFailed], tuple[list[str], str]]:
        found = json.loads(str(self))
        return HostedAppsFailed, (found["apps"], found["error"])


@dataclass(frozen=True, slots=True)
class Failed:
    """What the driver reads of it."""

    incarnations: tuple[str, ...]
    error: str


def failed_in(text: str) -> Failed | None:
    """The Apps that an error of Spark names, if any."""
    if (found := _LINE.search(text)) is None:
        return None
    try:
        document = json.loads(found[1])
    except ValueError:
        return None
    return Failed(tuple(document["apps"]), document["error"])


@contextmanager
def named(incarnation: str) -> Iterator[None]:
    """Errors in this block are the App's."""
    try:
        yield
    except HostedAppsFailed:
        raise
    except Exception as error:
        text = str(error) if isinstance(error, PlainError) else f"{type(error).__name__}: {error}"
        raise HostedAppsFailed([incarnation], text) from None
