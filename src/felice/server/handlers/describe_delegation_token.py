"""DescribeDelegationToken (key 41): the tokens of the client, and those that it may describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.security.delegation_tokens import DelegationToken
from felice.security.principal import Principal
from felice.server.flow.pace import paced
from felice.server.requests.token_requests import check_connection
from felice.server.security.access_control import Access, in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext


_REQUESTER_SINCE = 3

guard = in_handler  # DESCRIBE of the token, or DESCRIBE_TOKENS of its owner


async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Describes the tokens of the requested owners that the client may see."""
    tokens = context.services.security.tokens
    try:
        check_connection(context)
        if not tokens.is_enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    except ApiError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    wanted = None
    if request.owners is not None:
        wanted = {Principal(one.principal_type, one.principal_name) for one in request.owners}
    access = context.access
    rows = []
    async for token in paced(list(tokens.all), context.services.env.clock):
        is_wanted = wanted is None or not wanted.isdisjoint((token.owner, token.requester, *token.renewers))
        if is_wanted and _is_visible(token, context.principal, access):
            row = _row(token, tokens.secret(token))
            if context.version >= _REQUESTER_SINCE:
                row.token_requester_principal_type = token.requester.kind
                row.token_requester_principal_name = token.requester.name
            rows.append(row)
    return DescribeDelegationTokenResponse(tokens=rows)


def _is_visible(token: DelegationToken, client: Principal, access: Access) -> bool:
    return (
        token.concerns(client)
        or access.shows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or access.shows(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _row(token: DelegationToken, secret: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=one.kind, principal_name=one.name)
            for one in token.renewers
        ],
    )
