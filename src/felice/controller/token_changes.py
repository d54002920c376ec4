"""Changes of delegation tokens in the metadata store. Any broker carries them out.

Keeps true: C1 a token changes by compare-and-set of its node; after a version conflict the change is decided again on
            the newer token.
            The image of this broker shows a change when the call returns; other brokers watch the store.
"""

from __future__ import annotations

from collections.abc import Callable

from felice.controller.notifications import write_with_notification
from felice.controller.writing import FOLLOW_TIMEOUT_S, LOST_RACE, answering
from felice.metadata import Create, Delete, MetadataStore, SetData
from felice.metadata.store import Operation
from felice.metadata.token_nodes import CHANGE_PREFIX, decode_token, encode_token, token_path
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.security.delegation_tokens import DelegationToken

_MAX_ATTEMPTS = 20
# Every broker keeps all tokens in memory, and clients choose the renewers.
_MAX_TOKEN_BYTES = 4 * 1024

Decide = Callable[[DelegationToken], DelegationToken | None]
"""Returns the changed token, or None to delete it. Raises `ApiError` if it must not be changed."""


class TokenChanges:
    """Creates, changes and deletes delegation tokens."""

    def __init__(self, store: MetadataStore, watcher: Watcher) -> None:
        self._store = store
        self._watcher = watcher

    @answering
    async def create(self, token: DelegationToken) -> None:
        """Stores a new token. Its id must be new. Raises `ApiError` for a token that must not be stored."""
        path, data = token_path(token.token_id), _content(token)
        for _ in range(_MAX_ATTEMPTS):
            if await self._write(token.token_id, Create(path, data)):
                await self._wait_shown(token.token_id, None)
                return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the delegation token could not be stored")

    @answering
    async def change(self, token_id: str, decide: Decide) -> DelegationToken | None:
        """Changes or deletes a token, and returns it as it is now. DELEGATION_TOKEN_NOT_FOUND if it does not exist."""
        path = token_path(token_id)
        for _ in range(_MAX_ATTEMPTS):
            node = await self._store.exists(path)
            if node is None:
                raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            token, shown = decode_token(node.data), self._watcher.image.tokens.get(token_id)
            changed = decide(token)
            if changed == token:
                return token
            write: Operation
            if changed is None:
                write = Delete(path, node.version)
            else:
                write = SetData(path, encode_token(changed), node.version)
            if await self._write(token_id, write):
                await self._wait_shown(token_id, token, shown)
                return changed
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the delegation token kept changing")

    async def _write(self, token_id: str, write: Operation) -> bool:
        try:
            await write_with_notification(self._store, write, CHANGE_PREFIX, token_id.encode())
        except LOST_RACE:
            return False
        return True

    async def _wait_shown(self, token_id: str, *older: DelegationToken | None) -> None:
        """Waits until the image shows none of the older states: ours, or one that another broker wrote after it."""
        await self._watcher.wait_until(
            lambda image: image.tokens.get(token_id) not in older, FOLLOW_TIMEOUT_S
        )


def _content(token: DelegationToken) -> bytes:
    data = encode_token(token)
    if len(data) > _MAX_TOKEN_BYTES:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "the delegation token has too many or too long renewers")
    # Brokers ignore nodes that they cannot read, so such a token would never be deleted.
    if not _is_readable(data, token):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "a principal of the delegation token has no type or no name"
        )
    return data


def _is_readable(data: bytes, token: DelegationToken) -> bool:
    try:
        return decode_token(data) == token
    except ValueError:
        return False
