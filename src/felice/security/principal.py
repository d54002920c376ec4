"""A principal: the authenticated identity behind a connection. ACLs, quotas and logs name it.

`Principal.parse("User:alice")` reads the text form that ACLs and `super.users` use.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from felice.dataclass import dataclass

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """An identity: its kind, which is `User` for every authentication of Kafka, and its name."""

    kind: str
    name: str
    token_authenticated: bool = False
    """Whether the client logged in with a delegation token. Such a client cannot create further tokens."""

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parses `Kind:name`; the name may contain colons. Raises `ValueError`."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"expected a principal as Kind:name, such as User:alice; found {text!r}")
        return cls(kind, name)

    def is_same_as(self, other: Principal) -> bool:
        """Whether both have the same kind and name, however they logged in."""
        return self.kind == other.kind and self.name == other.name

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of a client that did not authenticate."""


def host_text(address: str) -> str:
    """The text of a peer's IP address to which ACLs compare their host, in the form of Java.

    IPv6 has all eight groups without leading zeros (`0:0:0:0:0:0:0:1`). An IPv4 address that was mapped into IPv6 is
    IPv4. Anything but an IP address is returned as it is.
    """
    if ":" not in address:
        return address
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))
