"""The nodes of delegation tokens: Kafka 3.x's paths and JSON.

A node has no secret: brokers derive the HMAC of a token from its id.
"""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

from felice.security.delegation_tokens import DelegationToken
from felice.security.principal import Principal

TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"
"""The path of change notifications, without the number at its end. Their content is the id of the token."""

_VERSION = 3
_SAFE = "-_.~"


def token_path(token_id: str) -> str:
    """The node of a token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """Content of a token's node. Principals are encoded like parts of a URL, as in Kafka."""
    value = {
        "version": _VERSION,
        "owner": _encoded(token.owner),
        "tokenRequester": _encoded(token.requester),
        "renewers": [_encoded(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_token(data: bytes) -> DelegationToken:
    """The token in a node. Kafka before 3.3 wrote no requester. Raises ValueError, KeyError or TypeError."""
    value = json.loads(data)
    if not 1 <= int(value["version"]) <= _VERSION:
        raise ValueError(f"version {value['version']} of a delegation token is unknown")
    owner = _decoded(value["owner"])
    return DelegationToken(
        token_id=str(value["tokenId"]),
        owner=owner,
        requester=_decoded(value["tokenRequester"]) if "tokenRequester" in value else owner,
        renewers=tuple(_decoded(text) for text in value["renewers"]),
        issued_ms=int(value["issueTimestamp"]),
        expires_ms=int(value["expiryTimestamp"]),
        max_ms=int(value["maxTimestamp"]),
    )


def _encoded(principal: Principal) -> str:
    return quote(str(principal), safe=_SAFE)


def _decoded(text: str) -> Principal:
    return Principal.parse(unquote(text))
