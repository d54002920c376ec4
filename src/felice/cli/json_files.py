"""The files that Kafka's tools read: JSON with one list of rows, most of which name a partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from felice.cli.faults import Fault

T = TypeVar("T")


def read_rows(path: Path, listed: str, shape: str, read: Callable[[Any], T]) -> list[T]:
    """What `read` makes of each row of the list of this name; `shape` is shown where the file is of another."""
    try:
        return [read(row) for row in json.loads(path.read_text())[listed]]
    except json.JSONDecodeError as error:
        raise Fault(f"{path} is not JSON: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{path} is not of the form {shape}: {error!r}") from None


def partition_of(row: Any) -> tuple[str, int]:
    return str(row["topic"]), int(row["partition"])
