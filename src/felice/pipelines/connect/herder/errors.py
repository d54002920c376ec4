"""How a request of a user fails: with a status of HTTP and Kafka's text."""

from __future__ import annotations

from http import HTTPStatus

from felice.pipelines.connect.model.errors import ConnectError


class RequestError(ConnectError):
    """The request cannot be carried out."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotHere(Exception):
    """Another worker must carry out the request. `url` is its address, or None if it is not known yet."""

    def __init__(self, url: str | None) -> None:
        super().__init__(url)
        self.url = url


def not_found(message: str) -> RequestError:
    """There is no such thing."""
    return RequestError(HTTPStatus.NOT_FOUND, message)


def bad_request(message: str) -> RequestError:
    """The request is wrong."""
    return RequestError(HTTPStatus.BAD_REQUEST, message)


def conflict(message: str) -> RequestError:
    """The request does not fit what is there, or what is going on."""
    return RequestError(HTTPStatus.CONFLICT, message)


def forbidden(message: str) -> RequestError:
    """The worker's configuration does not allow it."""
    return RequestError(HTTPStatus.FORBIDDEN, message)
