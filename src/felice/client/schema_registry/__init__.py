"""A client of a schema registry, and serializers with schemas, at confluent_kafka's names.

    from felice.client.schema_registry import SchemaRegistryClient    # instead of: from confluent_kafka.schema_registry
    from felice.client.schema_registry.avro import AvroSerializer

The submodules `avro`, `json_schema`, `protobuf`, `serde`, `error` and `schema_registry_client` have confluent_kafka's
names, too. All need the extra `felice[schemas]`.

Inside, `operations` (the client's calls), `serializing` and `deserializing` are pure: they yield `steps`, which the
shells `client` and `serdes` carry out, blocking or as coroutines. `avro_format` and its neighbours know the formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.late_names import late_names

if TYPE_CHECKING:
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
    from felice.client.schema_registry.framing import (
        dual_schema_id_deserializer as dual_schema_id_deserializer,
    )
    from felice.client.schema_registry.framing import (
        header_schema_id_serializer as header_schema_id_serializer,
    )
    from felice.client.schema_registry.framing import (
        prefix_schema_id_deserializer as prefix_schema_id_deserializer,
    )
    from felice.client.schema_registry.framing import (
        prefix_schema_id_serializer as prefix_schema_id_serializer,
    )
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
    from felice.client.schema_registry.subjects import (
        record_subject_name_strategy as record_subject_name_strategy,
    )
    from felice.client.schema_registry.subjects import (
        reference_subject_name_strategy as reference_subject_name_strategy,
    )
    from felice.client.schema_registry.subjects import (
        topic_record_subject_name_strategy as topic_record_subject_name_strategy,
    )
    from felice.client.schema_registry.subjects import (
        topic_subject_name_strategy as topic_subject_name_strategy,
    )


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = late_names(
        __name__,
        {
            f"{__name__}.associations": "Association AssociationCreateOrUpdateInfo "
            "AssociationCreateOrUpdateRequest AssociationInfo AssociationResponse",
            f"{__name__}.client": "AsyncSchemaRegistryClient SchemaRegistryClient",
            f"{__name__}.error": "SchemaRegistryError",
            f"{__name__}.framing": "dual_schema_id_deserializer header_schema_id_serializer "
            "prefix_schema_id_deserializer prefix_schema_id_serializer",
            f"{__name__}.model": "ConfigCompatibilityLevel Metadata MetadataProperties MetadataTags "
            "RegisteredSchema Rule RuleKind RuleMode RuleParams RuleSet Schema SchemaReference ServerConfig",
            f"{__name__}.subjects": "record_subject_name_strategy reference_subject_name_strategy "
            "topic_record_subject_name_strategy topic_subject_name_strategy",
        },
        modules=("avro", "error", "json_schema", "protobuf", "schema_registry_client", "serde"),
    )
