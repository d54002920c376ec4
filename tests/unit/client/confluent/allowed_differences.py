"""The intended differences of `felice.client` from confluent_kafka's public names, each with its reason.

Keys are names below `confluent_kafka`, as the comparison reports them.
"""

from __future__ import annotations

_SHARE = "share groups (KIP-932) are not supported"
_SASL = "the credentials of this client are those of its configuration, and cannot be replaced"

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
}
"""Names that confluent_kafka has and `felice.client` lacks."""

PARAMETERS = {
    "KafkaError": "the stub calls the first parameter `code`, the class itself takes `error`, as here",
    "Message": "`delivery_count` belongs to share groups (KIP-932)",
}
"""Callables whose parameters differ, by their last name."""
