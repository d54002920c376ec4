"""Options of a broker that authorises its clients, under Kafka's names."""

from __future__ import annotations

from felice.config.option import ConfigError, Kind, option
from felice.dataclass import dataclass

AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's two authorizers. They decide alike, and so does Felice's, which has both names."""


@dataclass(frozen=True, slots=False)
class AuthorizerOptions:
    """Options of the authorizer. All others have an effect only if `authorizer.class.name` is set."""

    authorizer_class_name: str = option(
        "authorizer.class.name",
        Kind.STRING,
        "",
        "Whether clients need permission by ACLs: org.apache.kafka.metadata.authorizer.StandardAuthorizer or "
        "kafka.security.authorizer.AclAuthorizer, which mean the same here. Empty: every client may do everything.",
    )
    super_users: str = option(
        "super.users",
        Kind.STRING,
        "",
        "Principals that may do everything, separated by semicolons: User:admin;User:broker. The principal with which "
        "brokers connect to each other belongs here, unless ACLs allow it ClusterAction on the cluster and Describe of "
        "every topic.",
    )
    allow_everyone_if_no_acl_found: bool = option(
        "allow.everyone.if.no.acl.found",
        Kind.BOOLEAN,
        False,
        "Whether a resource for which there is no ACL is open to everyone.",
    )

    @property
    def has_authorizer(self) -> bool:
        """Whether clients need permission."""
        return bool(self.authorizer_class_name)

    @property
    def super_user_names(self) -> frozenset[str]:
        """The principals in `super.users`."""
        return frozenset(name.strip() for name in self.super_users.split(";") if name.strip())

    def check_authorizer(self) -> None:
        """Raises `ConfigError` for an unknown authorizer, a wrong super user, or super users without an authorizer."""
        if self.has_authorizer and self.authorizer_class_name not in AUTHORIZERS:
            raise ConfigError(
                "authorizer.class.name",
                self.authorizer_class_name,
                f"only {' or '.join(AUTHORIZERS)} is known",
            )
        for name in self.super_user_names:
            kind, _, rest = name.partition(":")
            # No login gives a principal of another type, so another type would have no effect.
            if kind != "User" or not rest:
                raise ConfigError(
                    "super.users", name, "expected principals as User:name, separated by semicolons"
                )
        if self.super_user_names and not self.has_authorizer:
            raise ConfigError(
                "super.users",
                self.super_users,
                "without authorizer.class.name every user may do everything; set that too, or remove super.users",
            )
