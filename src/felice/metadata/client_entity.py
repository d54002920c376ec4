"""The clients that a node below /config/users, /config/clients or /config/ips configures.

    users/alice                    ClientEntity(user="alice")
    users/alice/clients/<default>  ClientEntity(user="alice", client_id=DEFAULT)
    ips/10.0.0.1                   ClientEntity(ip="10.0.0.1")

A default entity stands for each user, client id or address without a node of its own.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

DEFAULT = ""
"""The name of a default entity. No user, client id or address has an empty name."""

_DEFAULT_NODE = "<default>"
_USERS, _CLIENTS, _IPS = "users", "clients", "ips"


class ClientEntity(NamedTuple):
    """A user, a client id, both together, or an address."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def path(self) -> str:
        """The path of its node below /config."""
        if self.ip is not None:
            return f"{_IPS}/{_node_name(self.ip)}"
        parts = [] if self.user is None else [_USERS, _node_name(self.user)]
        parts += [] if self.client_id is None else [_CLIENTS, _node_name(self.client_id)]
        return "/".join(parts)

    @classmethod
    def of_path(cls, path: str) -> ClientEntity | None:
        """The entity of a node below /config; None for a node that is only a parent of others."""
        match path.split("/"):
            case ["users", user]:
                return cls(user=_name_of(user))
            case ["users", user, "clients", client_id]:
                return cls(user=_name_of(user), client_id=_name_of(client_id))
            case ["clients", client_id]:
                return cls(client_id=_name_of(client_id))
            case ["ips", ip]:
                return cls(ip=_name_of(ip))
        return None


def _node_name(name: str) -> str:
    return _DEFAULT_NODE if name == DEFAULT else quote(name, safe="")


def _name_of(node: str) -> str:
    return DEFAULT if node == _DEFAULT_NODE else unquote(node)
