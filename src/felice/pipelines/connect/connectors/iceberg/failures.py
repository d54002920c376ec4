"""Errors of the catalog and of files as those of the framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from felice.pipelines.connect.model.errors import ConnectError, RetriableError, one_line


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
        raise RetriableError(f"the tables cannot be reached: {one_line(error)}") from error
    except Exception as error:  # of catalogs of any kind
        if type(error).__name__ in ("OperationalError", "InterfaceError"):  # a database that is away
            raise RetriableError(f"the catalog cannot be reached: {one_line(error)}") from error
        raise ConnectError(f"the tables cannot be written: {one_line(error)}") from error
