"""EXTRACTJSONFIELD: a value in a JSON text, by its path."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from felice.pipelines.sql.functions.table import scalar

_STEP = re.compile(r'\.([^.\[\]"\s]+)|\[([\w-]+)\]|\["((?:[^"\\]|\\.)*)"\]')
_LONGEST_PATH = 10_000
_INDEX = re.compile(r"[0-9]{1,9}")
_SPACE = re.compile(r"[ \t\r\n]*")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Decimals keep the digits of numbers as they were written.
_DECODER = json.JSONDecoder(parse_int=Decimal, parse_float=Decimal, parse_constant=_no_number)


@lru_cache(maxsize=1000)
def _steps(path: str) -> tuple[str, ...]:
    """The names and indexes of a path. Raises ValueError."""
    found, at = list[str](), int(path.startswith("$"))
    while 0 < at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            break
        name, subscript, quoted = step.groups()
        found.append(name or subscript or re.sub(r"\\(.)", r"\1", quoted))
        at = step.end()
    if at < max(len(path), 1) or len(path) > _LONGEST_PATH:
        raise ValueError(f'expected a path such as $.name[0]["other name"], and got {path!r:.80}')
    return tuple(found)


@scalar(
    "EXTRACTJSONFIELD(text STRING, path STRING) -> STRING",
    "The value at a path of a JSON text, as text: objects and arrays as JSON. Null if there is none.",
    ("""EXTRACTJSONFIELD('{"log": {"cloud": "gcp", "id": 4}}', '$.log.cloud')""", "'gcp'"),
    ("""EXTRACTJSONFIELD('{"log": [1, 2.50]}', '$.log[1]')""", "'2.50'"),
)
def extracted(text: str, path: str) -> str | None:
    """What follows the first JSON value does not matter. Raises ValueError for a text that is not JSON."""
    steps = _steps(path)
    start = _SPACE.match(text)
    assert start is not None
    if start.end() == len(text):
        return None
    try:
        value, _ = _DECODER.raw_decode(text, start.end())
        for step in steps:
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
                value = value[int(step)]
            else:
                return None
        return value if isinstance(value, str) else _text(value)
    except RecursionError:
        raise ValueError(f"the JSON nests too deeply: {text:.40}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON, and got {text!r:.80}: {error.msg}") from None


def _text(value: Any) -> str:
    """A value as JSON without spaces."""
    match value:
        case dict():
            return "{" + ",".join(f"{_text(name)}:{_text(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_text, value)) + "]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)
