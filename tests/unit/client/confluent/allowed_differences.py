"""Where `felice.client` differs on purpose from confluent_kafka's public names, with the reason of each difference.

Keys are names below `confluent_kafka`, as the comparison reports them.
"""

from __future__ import annotations

_SHARE = "share groups (KIP-932) are not supported"
_SASL = "this client has no SASL"
_ACLS = "this client does not administer access rules"
_SCRAM = "this client does not administer SCRAM users"

ABSENT = {
    "error.Message": "an accident of confluent_kafka's imports; Message is in felice.client",
    "AcknowledgeType": _SHARE,
    "DeserializingShareConsumer": _SHARE,
    "Messages": _SHARE,
    "ShareConsumer": _SHARE,
    "cimpl.ShareConsumer": _SHARE,
    "Consumer.set_sasl_credentials": _SASL,
    "Producer.set_sasl_credentials": _SASL,
    "aio.AIOConsumer.set_sasl_credentials": _SASL,
    "aio.AIOProducer.set_sasl_credentials": _SASL,
    "admin.AdminClient.set_sasl_credentials": _SASL,
    "admin.AclBinding": _ACLS,
    "admin.AclBindingFilter": _ACLS,
    "admin.AclPermissionType": _ACLS,
    "admin.ResourcePatternType": _ACLS,
    "admin.AdminClient.create_acls": _ACLS,
    "admin.AdminClient.delete_acls": _ACLS,
    "admin.AdminClient.describe_acls": _ACLS,
    "admin.AdminClient.alter_user_scram_credentials": _SCRAM,
    "admin.AdminClient.describe_user_scram_credentials": _SCRAM,
    "admin.ScramCredentialInfo": _SCRAM,
    "admin.ScramMechanism": _SCRAM,
    "admin.UserScramCredentialAlteration": _SCRAM,
    "admin.UserScramCredentialDeletion": _SCRAM,
    "admin.UserScramCredentialUpsertion": _SCRAM,
    "admin.UserScramCredentialsDescription": _SCRAM,
}
"""Names that confluent_kafka has and `felice.client` has not."""

PARAMETERS = {
    "KafkaError": "the stub calls the first parameter `code`, the class itself takes `error`, as here",
    "Message": "`delivery_count` belongs to share groups (KIP-932)",
}
"""Callables whose parameters differ, by their last name."""
