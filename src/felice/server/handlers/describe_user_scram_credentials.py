"""DescribeUserScramCredentials (key 50): mechanisms and iterations of users' SCRAM credentials, without their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from felice.security.acl import Operation
from felice.security.sasl.scram import ScramCredential
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import each
from felice.server.security.scram_users import MECHANISMS

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(
    API.DESCRIBE_USER_SCRAM_CREDENTIALS, cluster_permission(Operation.DESCRIBE), has_rows=True
)


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describes the requested users, or all that have a credential, in the order of their names."""
    configs = {
        entity.user: config
        for entity, config in context.services.image.client_configs.items()
        if entity.user and entity.client_id is None
    }
    asked = Counter(user.name for user in request.users or ())
    users = sorted(asked) if asked else [user for user in sorted(configs) if _credentials(configs[user])]
    results = await each(
        users,
        lambda user: _result(user, asked[user] > 1, configs.get(user, {})),
        context.services.env.clock,
    )
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _result(user: str, is_repeated: bool, config: Mapping[str, str]) -> DescribeUserScramCredentialsResult:
    found = _credentials(config)
    if is_repeated:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    if not found:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=found)


def _credentials(config: Mapping[str, str]) -> list[CredentialInfo]:
    found = []
    for number, mechanism in MECHANISMS.items():
        if mechanism in config:
            try:
                iterations = ScramCredential.parse(config[mechanism]).iterations
            except ValueError:
                continue  # nobody can log in with it
            found.append(CredentialInfo(mechanism=number, iterations=iterations))
    return found
