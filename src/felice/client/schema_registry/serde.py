"""What serializers of all formats use, at the place where programs for confluent_kafka import it from."""

from __future__ import annotations

from felice.client.schema_registry.builders import async_build_serde, build_serde
from felice.client.schema_registry.framing import SchemaId
from felice.client.schema_registry.serdes import (
    AsyncBaseDeserializer,
    AsyncBaseSerde,
    AsyncBaseSerializer,
    BaseDeserializer,
    BaseSerde,
    BaseSerializer,
)
from felice.client.schema_registry.subjects import (
    FALLBACK_TYPE,
    KAFKA_CLUSTER_ID,
    STRATEGY_TYPE_MAP,
    AssociatedNameStrategy,
    AsyncAssociatedNameStrategy,
    SubjectNameStrategyType,
)

__all__ = [
    "FALLBACK_TYPE",
    "KAFKA_CLUSTER_ID",
    "STRATEGY_TYPE_MAP",
    "AssociatedNameStrategy",
    "AsyncAssociatedNameStrategy",
    "AsyncBaseDeserializer",
    "AsyncBaseSerde",
    "AsyncBaseSerializer",
    "BaseDeserializer",
    "BaseSerde",
    "BaseSerializer",
    "SchemaId",
    "SubjectNameStrategyType",
    "async_build_serde",
    "build_serde",
]
