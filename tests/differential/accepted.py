"""Differences that are meant, from `accepted.toml`; docs/compatibility.md has the words of each `reason`.

[[difference]]
api = "Produce"            # * stands for anything, here and below
path = "responses[]*"      # where the answers differ; * stands for anything
kafka = "-1"               # what Kafka answers, as JSON; * stands for anything
felice = "*"
ends_run = true          # from here on the two are in different states
whole_answer = true        # explains every other difference of the same answer
reason = "..."             # words that docs/compatibility.md has
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from differential.operation import Operation
from differential.plain import Plain

TABLE = Path(__file__).with_name("accepted.toml")
Difference = tuple[str, Plain, Plain]


@dataclass(frozen=True, slots=True)
class Accepted:
    api: str
    reason: str
    path: str = "*"
    kafka: str = "*"
    felice: str = "*"
    ends_run: bool = False
    whole_answer: bool = False

    def covers(self, operation: Operation, difference: Difference) -> bool:
        path, kafka, felice = difference
        return (
            _matches(operation.api, self.api)
            and _matches(path, self.path)
            and _matches(json.dumps(kafka), self.kafka)
            and _matches(json.dumps(felice), self.felice)
        )


def _matches(text: str, pattern: str) -> bool:
    """As a shell's pattern, in which only * and ? mean something."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def load(table: Path = TABLE) -> list[Accepted]:
    rows = tomllib.loads(table.read_text()).get("difference", [])
    return [Accepted(**row) for row in rows]


def covering(table: list[Accepted], operation: Operation, found: list[Difference]) -> list[Accepted] | None:
    """The rows that explain every one of these differences, or None."""
    rows = []
    for difference in found:
        row = next((row for row in table if row.covers(operation, difference)), None)
        if row is not None:
            rows.append(row)
    is_explained = len(rows) == len(found) or any(row.whole_answer for row in rows)
    return rows if is_explained else None
