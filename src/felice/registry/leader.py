"""The texts by which registries of one group agree on their leader: each one's identity, and the choice. Pure.

Keeps true:  the leader is the eligible registry with the smallest address, and all members are told the same. Two
             members with one address are a mistake of configuration: then nobody leads.
Source:      the protocol `sr`, version `v0`, of Confluent's registry; members of either kind understand each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from felice.dataclass import dataclass
from felice.registry.rules import Json

PROTOCOL_TYPE = "sr"
PROTOCOL = "v0"
DEFAULT_GROUP = "schema-registry"

NO_ERROR = 0
DUPLICATE_ADDRESSES = 1
_VERSION = 1


class BadMember(Exception):
    """Metadata or an assignment that is not of this protocol."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a registry is reached by the others, and whether it may lead."""

    host: str
    port: int
    eligible: bool = True
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The address to which others forward requests."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def encode(self) -> bytes:
        """The metadata of a member of the group."""
        return _encode(self._members())

    def _members(self) -> dict[str, Json]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """What all members are told: the leader's member id and identity, or neither, and an error number."""

    member_id: str | None
    identity: Identity | None
    error: int = NO_ERROR

    def encode(self) -> bytes:
        """The assignment of a member of the group."""
        identity = None if self.identity is None else self.identity._members()
        return _encode(
            {
                "version": _VERSION,
                "error": self.error,
                "master": self.member_id,
                "master_identity": identity,
            }
        )


def choose(members: Mapping[str, bytes]) -> Choice:
    """The choice for the members' metadata by member id. Members that are not registries cannot lead."""
    found = []
    for member_id, metadata in members.items():
        try:
            found.append((identity_of(metadata), member_id))
        except BadMember:
            continue
    if len({identity.url for identity, _ in found}) < len(found):
        return Choice(None, None, DUPLICATE_ADDRESSES)
    eligible = [(identity.url, member_id, identity) for identity, member_id in found if identity.eligible]
    if not eligible:
        return Choice(None, None)
    _, member_id, identity = min(eligible, key=lambda item: item[:2])
    return Choice(member_id, identity)


def assign(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The assignment of each member: the same for all."""
    assignment = choose(members).encode()
    return dict.fromkeys(members, assignment)


def identity_of(metadata: bytes) -> Identity:
    """Reads the metadata of a member. Raises `BadMember`."""
    return _identity(_decode(metadata))


def choice_of(assignment: bytes) -> Choice:
    """Reads an assignment. Raises `BadMember`."""
    found = _decode(assignment)
    error, member_id = found.get("error"), found.get("master")
    if not isinstance(error, int) or not isinstance(member_id, str | None):
        raise BadMember("an assignment needs error and master")
    identity = found.get("master_identity")
    return Choice(member_id, None if identity is None else _identity(identity), error)


def _identity(found: Json) -> Identity:
    host, port = (found.get("host"), found.get("port")) if isinstance(found, dict) else (None, None)
    if not isinstance(host, str) or not isinstance(port, int) or isinstance(port, bool):
        raise BadMember("an identity needs host and port")
    scheme = found.get("scheme", "http")
    eligible = found.get("master_eligibility", found.get("leader_eligibility", True))
    if scheme not in ("http", "https") or not isinstance(eligible, bool):
        raise BadMember("an identity has the scheme http or https, and an eligibility")
    return Identity(host, port, eligible, scheme)


def _decode(data: bytes) -> dict[str, Json]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadMember("it is not JSON") from None
    if not isinstance(found, dict):
        raise BadMember("it is not a JSON object")
    return found


def _encode(members: dict[str, Json]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
