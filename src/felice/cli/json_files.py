"""The files that Kafka's tools read: JSON with one list of rows, most of which name a partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from felice.cli.faults import Fault
from felice.cli.options import read_text

T = TypeVar("T")


def read_rows(path: Path, listed: str, shape: str, read: Callable[[Any], T]) -> list[T]:
    """What `read` makes of each row of the list of this name; `shape` is shown where the file is of another."""
    try:
        return [read(row) for row in json.loads(read_text(path))[listed]]
    except json.JSONDecodeError as error:
        raise Fault(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise Fault(f"{path} is nested too deeply; it should be of the form {shape}") from None
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{path} is not of the form {shape}: {error!r}") from None


def partition_of(row: Any) -> tuple[str, int]:
    return str(row["topic"]), int(row["partition"])
