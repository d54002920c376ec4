"""CreateDelegationToken (key 38): creates a token for the client, or for another owner (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.security.principal import USER, Principal
from felice.server.requests.token_requests import check_connection, refused_timestamp_ms
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext


_REQUESTER_SINCE = 3

guard = in_handler  # CREATE_TOKENS of the owner, if it is not the client


async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Creates the token. A refusal names owner and requester, too."""
    requester, owner = context.principal, _owner(request, context.principal)
    response = CreateDelegationTokenResponse(principal_type=owner.kind, principal_name=owner.name)
    if context.version >= _REQUESTER_SINCE:
        response.token_requester_principal_type = requester.kind
        response.token_requester_principal_name = requester.name
    try:
        _check(owner, request, context)
        renewers = tuple(Principal(one.principal_type, one.principal_name) for one in request.renewers)
        tokens = context.services.security.tokens
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except ApiError as error:
        response.error_code = error.code
        response.issue_timestamp_ms = response.expiry_timestamp_ms = refused_timestamp_ms(error)
        response.max_timestamp_ms = response.issue_timestamp_ms
        return response
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = tokens.secret(token)
    return response


def _owner(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _check(owner: Principal, request: CreateDelegationTokenRequest, context: RequestContext) -> None:
    check_connection(context)
    is_own = owner.is_same_as(context.principal)
    if not is_own and not context.access.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    # A login with the token would be that of the user with the owner's name.
    if owner.kind != USER or any(one.principal_type != USER for one in request.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
