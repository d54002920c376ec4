"""AlterUserScramCredentials (key 51): sets and deletes users' SCRAM credentials.

If one change of a user is not acceptable, none of this user's changes is made. Any broker answers: the metadata store
orders concurrent changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.metadata.client_entity import ClientEntity
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced
from felice.server.security import scram_users

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def _refused(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([row.name for row in request.deletions] + [row.name for row in request.upsertions])
    rows = [
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=code.message)
        for user in users
    ]
    return AlterUserScramCredentialsResponse(results=rows)


guard = request_needs(API.ALTER_USER_SCRAM_CREDENTIALS, cluster_permission(Operation.ALTER), refuse=_refused)


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Changes one user after the other; the response has one result for each, in the order of the request."""
    by_user: dict[str, list[scram_users.Change]] = {}
    changes: list[scram_users.Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    results = []
    async for user in paced(list(by_user), context.services.env.clock):
        results.append(await _alter(user, by_user[user], context))
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(
    user: str, changes: list[scram_users.Change], context: RequestContext
) -> AlterUserScramCredentialsResult:
    result = AlterUserScramCredentialsResult(user=user, error_message=None)
    try:
        scram_users.check_name(user)
        await context.services.changes.cluster.change_client_config(
            ClientEntity(user), lambda current: scram_users.changed(current, changes)
        )
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
