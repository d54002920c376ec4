"""Errors of the catalog and of files as those of the framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from felice.pipelines.connect.model.errors import ConnectError, RetriableError


@contextmanager
def failures() -> Iterator[None]:
    """Raises `RetriableError` for what another attempt may not meet, and `ConnectError` for all else."""
    from pyiceberg import exceptions

    try:
        yield
    except ConnectError:
        raise
    except ModuleNotFoundError as error:
        raise ConnectError(f"{error.name} is not installed: pip install 'felice[connect-iceberg]'") from error
    except (OSError, exceptions.RESTError, exceptions.CommitStateUnknownException) as error:
        raise RetriableError(f"the tables cannot be reached: {_text(error)}") from error
    except Exception as error:  # of catalogs of any kind
        if type(error).__name__ in ("OperationalError", "InterfaceError"):  # a database that is away
            raise RetriableError(f"the catalog cannot be reached: {_text(error)}") from error
        raise ConnectError(f"the tables cannot be written: {_text(error)}") from error


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
