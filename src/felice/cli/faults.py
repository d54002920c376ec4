"""Which exceptions the user can fix, and the one line that says how.

Any other exception is a bug of Felice and keeps its traceback.
"""

from __future__ import annotations

import click

# Names instead of classes, so that this module need not import the client and the server.
_TELLING = frozenset(
    ("KafkaException", "KafkaError", "ConfigError", "StartupError", "ApiError", "EnsembleError", "StoreError")
)


class Fault(click.ClickException):
    """A request of the user that cannot be carried out. The text says what to do about it."""


def describe_fault(error: BaseException) -> str | None:
    """The line to print for `error`, or None if the error is a bug."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, ImportError) and error.name and not error.name.startswith("felice"):
        return f"{error.name} is not installed; try: pip install 'felice[{_extra_of(error.name)}]'"
    if isinstance(error, OSError):
        return _describe_os_error(error)
    if any(kind.__name__ in _TELLING for kind in type(error).__mro__):
        return _describe_kafka(error)
    return None


def _extra_of(module: str) -> str:
    root = module.partition(".")[0]
    return {"pyspark": "spark", "pyarrow": "spark", "kazoo": "zookeeper"}.get(root, "demo")


def _describe_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _describe_kafka(error: BaseException) -> str:
    inner = error.args[0] if error.args else error
    text = getattr(inner, "str", None)
    told = str(text() if callable(text) else inner)
    if "does security.protocol fit" in told:
        return f"{told}; --command-config names the file with the options of a secured cluster"
    return told
