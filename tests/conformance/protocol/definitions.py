"""Reads Apache Kafka's own message definitions for comparison.

`FELICE_KAFKA_MESSAGES` names the folder; by default it is looked for beside the repository.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

_DEFAULT = Path(__file__).resolve().parents[4] / "shared" / "kafka" / "messages"
_TOKEN = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def folder() -> Path | None:
    path = Path(os.environ.get("FELICE_KAFKA_MESSAGES") or _DEFAULT)
    return path if path.is_dir() else None


def definition(name: str) -> dict[str, Any]:
    root = folder()
    assert root is not None
    for part in ("clients", "group-coordinator", "transaction-coordinator", "share-coordinator", "metadata"):
        path = root / part / f"{name}.json"
        if path.exists():
            text = _TOKEN.sub(lambda match: match[1] or "", path.read_text())
            found: dict[str, Any] = json.loads(text)
            return found
    raise LookupError(f"no definition of {name} in {root}")
