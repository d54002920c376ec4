"""Environment variables, and the files to which a configuration may refer.

The broker reads variables when the process starts, and only here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def is_set(name: str) -> bool:
    """Whether the variable is set, and neither empty nor 0."""
    return os.environ.get(name, "") not in ("", "0")


def all_variables() -> dict[str, str]:
    """The variables of the environment. Bytes that are not UTF-8 are lone surrogates."""
    return dict(os.environ)


@contextmanager
def changed(values: Mapping[str, str]) -> Iterator[None]:
    """Within, these variables have these values, for processes that are started too."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class SystemSources:
    """Where the values are to which references of a configuration refer (`felice.config.references.Sources`)."""

    def variable(self, name: str) -> str | None:
        """A variable of the environment."""
        return os.environ.get(name)

    def text_of(self, path: Path) -> str:
        """The text of a file. Raises OSError, or ValueError if it is not UTF-8."""
        return path.read_text(encoding="utf-8")

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory at `path`."""
        return path.exists()
