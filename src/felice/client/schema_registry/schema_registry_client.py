"""The clients of a registry and their values, at the place where programs for confluent_kafka import them from."""

from __future__ import annotations

from felice.client.schema_registry.associations import Association as Association
from felice.client.schema_registry.associations import (
    AssociationCreateOrUpdateInfo as AssociationCreateOrUpdateInfo,
)
from felice.client.schema_registry.associations import (
    AssociationCreateOrUpdateRequest as AssociationCreateOrUpdateRequest,
)
from felice.client.schema_registry.associations import AssociationInfo as AssociationInfo
from felice.client.schema_registry.associations import AssociationResponse as AssociationResponse
from felice.client.schema_registry.client import AsyncSchemaRegistryClient as AsyncSchemaRegistryClient
from felice.client.schema_registry.client import SchemaRegistryClient as SchemaRegistryClient
from felice.client.schema_registry.error import SchemaRegistryError as SchemaRegistryError
from felice.client.schema_registry.model import ConfigCompatibilityLevel as ConfigCompatibilityLevel
from felice.client.schema_registry.model import Metadata as Metadata
from felice.client.schema_registry.model import MetadataProperties as MetadataProperties
from felice.client.schema_registry.model import MetadataTags as MetadataTags
from felice.client.schema_registry.model import RegisteredSchema as RegisteredSchema
from felice.client.schema_registry.model import Rule as Rule
from felice.client.schema_registry.model import RuleKind as RuleKind
from felice.client.schema_registry.model import RuleMode as RuleMode
from felice.client.schema_registry.model import RuleParams as RuleParams
from felice.client.schema_registry.model import RuleSet as RuleSet
from felice.client.schema_registry.model import Schema as Schema
from felice.client.schema_registry.model import SchemaReference as SchemaReference
from felice.client.schema_registry.model import ServerConfig as ServerConfig
