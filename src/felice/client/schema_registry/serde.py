"""What serializers of all formats use, at the place where programs for confluent_kafka import it from."""

from __future__ import annotations

from felice.client.schema_registry.builders import async_build_serde as async_build_serde
from felice.client.schema_registry.builders import build_serde as build_serde
from felice.client.schema_registry.framing import SchemaId as SchemaId
from felice.client.schema_registry.serdes import AsyncBaseDeserializer as AsyncBaseDeserializer
from felice.client.schema_registry.serdes import AsyncBaseSerde as AsyncBaseSerde
from felice.client.schema_registry.serdes import AsyncBaseSerializer as AsyncBaseSerializer
from felice.client.schema_registry.serdes import BaseDeserializer as BaseDeserializer
from felice.client.schema_registry.serdes import BaseSerde as BaseSerde
from felice.client.schema_registry.serdes import BaseSerializer as BaseSerializer
from felice.client.schema_registry.subjects import FALLBACK_TYPE as FALLBACK_TYPE
from felice.client.schema_registry.subjects import KAFKA_CLUSTER_ID as KAFKA_CLUSTER_ID
from felice.client.schema_registry.subjects import STRATEGY_TYPE_MAP as STRATEGY_TYPE_MAP
from felice.client.schema_registry.subjects import AssociatedNameStrategy as AssociatedNameStrategy
from felice.client.schema_registry.subjects import AsyncAssociatedNameStrategy as AsyncAssociatedNameStrategy
from felice.client.schema_registry.subjects import SubjectNameStrategyType as SubjectNameStrategyType
