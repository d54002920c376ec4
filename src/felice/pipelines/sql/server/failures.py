"""What clients are told of a request that fails, in ksqlDB's shapes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from felice.client.error import KafkaException
from felice.pipelines.sql.syntax.errors import SqlError
from felice.web.errors import Errors, HttpError

BAD_REQUEST, BAD_STATEMENT = 40000, 40001
QUERY_ENDPOINT = 40002
NOT_FOUND, SERVER_ERROR, NOT_READY = 40400, 50000, 50300

Entity = dict[str, Any]


class StatementFailed(Exception):
    """A statement that was refused or failed, and the answers of the statements before it."""

    def __init__(
        self,
        message: str,
        statement: str,
        done: Sequence[Entity] = (),
        code: int = BAD_STATEMENT,
        status: int = HTTPStatus.BAD_REQUEST,
    ) -> None:
        super().__init__(message)
        self.message, self.statement, self.done = message, statement, list(done)
        self.code, self.status = code, status

    def after(self, done: Sequence[Entity]) -> StatementFailed:
        """The same, with the answers of the statements before it."""
        return StatementFailed(self.message, self.statement, done, self.code, self.status)

    @staticmethod
    def of(error: SqlError, statement: str, done: Sequence[Entity] = ()) -> StatementFailed:
        """For a statement that is wrong."""
        return StatementFailed(str(error), statement, done)

    def document(self) -> Entity:
        """As JSON."""
        return {
            "@type": "statement_error",
            "error_code": self.code,
            "message": self.message,
            "statementText": self.statement,
            "entities": self.done,
        }


def reason_of(error: Exception) -> str:
    """What an error says to a client."""
    return error.error.str() if isinstance(error, KafkaException) else str(error)


class SqlErrors(Errors):
    """Errors of the web stack as ksqlDB tells them: `error_code` is the status and two digits."""

    def of_status(
        self,
        status: int,
        message: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpError:
        """The error for a status that the web stack decided."""
        found = super().of_status(status, message, hint, headers)
        return HttpError(status, status * 100, found.message, found.hint, found.headers)

    def document(self, error: HttpError) -> Mapping[str, object]:
        """The members of the JSON object."""
        message = error.message if error.hint is None else f"{error.message}; {error.hint}"
        return {"@type": "generic_error", "error_code": error.error_code, "message": message}
