"""The JSON files that Kafka's tools read: one list of rows, most of which name a partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from felice.cli.faults import Fault
from felice.cli.options import read_text

T = TypeVar("T")


# A row is checked only when `read` uses it: `read_rows` then reports rows of another shape.
JsonRow: TypeAlias = Any


def read_rows(path: Path, listed: str, shape: str, read: Callable[[JsonRow], T]) -> list[T]:
    """Applies `read` to each row of the list named `listed`. The error for a wrong file quotes `shape`."""
    try:
        return [read(row) for row in json.loads(read_text(path))[listed]]
    except json.JSONDecodeError as error:
        raise Fault(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise Fault(f"{path} is nested too deeply; it should be of the form {shape}") from None
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{path} is not of the form {shape}: {error!r}") from None


def partition_of(row: JsonRow) -> tuple[str, int]:
    """The topic and the partition number that a row names."""
    return str(row["topic"]), int(row["partition"])
