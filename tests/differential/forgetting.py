"""Removes what a run left at a broker: its topics, and with an authorizer all ACLs, quotas and SCRAM users."""

from __future__ import annotations

import contextlib

from conformance.wire import Wire
from differential.side import Side
from felice.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.protocol.messages.delete_topics import DeleteTopicsRequest
from felice.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from felice.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

_ANY = 1


def forget(side: Side) -> None:
    """The next run finds the broker as the first run found it."""
    with (
        contextlib.suppress(OSError, AssertionError),
        side.address.connect(side.address.administrator) as wire,
    ):
        if side.address.logins:
            _forget_rights(wire)
        if side.topic_ids:
            wire.ask(DeleteTopicsRequest(topic_names=sorted(side.topic_ids), timeout_ms=1000), 5)


def _forget_rights(wire: Wire) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    wire.ask(DeleteAclsRequest(filters=[everything]))
    _forget_quotas(wire)
    users = wire.ask(DescribeUserScramCredentialsRequest(users=None)).results
    deletions = [
        ScramCredentialDeletion(name=row.user, mechanism=info.mechanism)
        for row in users
        for info in row.credential_infos
    ]
    if deletions:
        wire.ask(AlterUserScramCredentialsRequest(deletions=deletions))


def _forget_quotas(wire: Wire) -> None:
    found = wire.ask(DescribeClientQuotasRequest(components=[], strict=False)).entries or []
    entries = [
        EntryData(
            entity=[
                EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ],
            ops=[OpData(key=value.key, value=0.0, remove=True) for value in entry.values],
        )
        for entry in found
    ]
    if entries:
        wire.ask(AlterClientQuotasRequest(entries=entries))
