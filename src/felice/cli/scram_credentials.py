"""SCRAM users of a running cluster, in the words of `kafka-configs`: `SCRAM-SHA-512=[iterations=8192,password=secret]`.

Errors never repeat a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from felice.cli.faults import Fault
from felice.cli.options import wait_all
from felice.cli.scram import MECHANISMS

if TYPE_CHECKING:
    from felice.client.admin import AdminClient
    from felice.client.admin.scram import UserScramCredentialAlteration

DEFAULT_ITERATIONS = 4096
_VALUE = re.compile(r"(?:iterations=(-?[0-9]+),)?password=(.+)", re.DOTALL)


def is_credential(key: str) -> bool:
    """Whether a key of `--add-config` or `--delete-config` is a SCRAM mechanism."""
    return key in MECHANISMS


def alter_credentials(
    admin: AdminClient, user: str, added: Mapping[str, str], removed: Iterable[str]
) -> None:
    """Sets and deletes credentials of a user. Raises `Fault` for a value without a password."""
    from felice.client.admin.enumerations import ScramMechanism
    from felice.client.admin.scram import UserScramCredentialDeletion

    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialDeletion(user, ScramMechanism[_member(name)]) for name in removed
    ]
    changes += [_upsertion(user, name, text) for name, text in added.items()]
    wait_all(admin.alter_user_scram_credentials(changes))


def credentials_of(admin: AdminClient, user: str | None) -> dict[str, dict[str, int]]:
    """The iterations by mechanism, by user; of all users that have credentials if `user` is None."""
    found = admin.describe_user_scram_credentials().result()
    return {
        name: {info.mechanism.name.replace("_", "-"): info.iterations for info in row.scram_credential_infos}
        for name, row in sorted(found.items())
        if user in (None, name)
    }


def _upsertion(user: str, mechanism: str, text: str) -> UserScramCredentialAlteration:
    from felice.client.admin.enumerations import ScramMechanism
    from felice.client.admin.scram import ScramCredentialInfo, UserScramCredentialUpsertion

    found = _VALUE.fullmatch(text)
    if found is None:
        raise Fault(f"{mechanism} must be [password=...] or [iterations=8192,password=...]")
    iterations = int(found[1]) if found[1] is not None else DEFAULT_ITERATIONS
    info = ScramCredentialInfo(ScramMechanism[_member(mechanism)], iterations)
    return UserScramCredentialUpsertion(user, info, found[2].encode())


def _member(mechanism: str) -> str:
    return mechanism.replace("-", "_")
