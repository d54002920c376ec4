"""Resources that consist of a name and configurations: client metrics resources and the configurations of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from felice.config import BrokerConfig, ConfigError, Option, canonical_texts
from felice.config.client_metrics import CLIENT_METRICS_OPTIONS
from felice.config.group import GROUP_OPTIONS, GroupConfig
from felice.dataclass import dataclass
from felice.metadata import ClusterImage, layout
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_configs import ResourceType
from felice.server.configs.entries import BrokerLayers, ConfigEntry, client_metrics_entries, group_entries
from felice.server.telemetry.subscriptions import parse_resource

if TYPE_CHECKING:
    from felice.server.context import RequestContext


Edit: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new overrides of a resource for its current ones. Raises `ApiError`."""


@dataclass(frozen=True, slots=True)
class NamedResources:
    """All resources of one type."""

    options: Mapping[str, Option]
    unnamed: str
    """The error if the empty name is described."""
    unnamed_change: str
    """The error if the configuration of the empty name is changed."""
    configs: Callable[[ClusterImage], Mapping[str, Mapping[str, str]]]
    """The configurations in an image, by name."""
    path: Callable[[str], str]
    """The node of a configuration."""
    show: Callable[[Mapping[str, str], BrokerLayers], list[ConfigEntry]]
    check: Callable[[str, Mapping[str, str], BrokerConfig], object]
    """Raises `ApiError` for a configuration that the resource must not have."""

    def entries(self, name: str, context: RequestContext) -> list[ConfigEntry]:
        """Every configuration of a resource. The resource need not exist."""
        services = context.services
        return self.show(self.configs(services.image).get(name, {}), services.config_layers)

    def described(self, name: str, context: RequestContext) -> list[ConfigEntry]:
        """As `entries`. Raises `ApiError` for the empty name."""
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, self.unnamed)
        return self.entries(name, context)

    async def change(self, name: str, edit: Edit, validate_only: bool, context: RequestContext) -> None:
        """Edits the configuration of a resource. Raises `ApiError`."""
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, self.unnamed_change)
        services = context.services

        def checked(current: Mapping[str, str]) -> Mapping[str, str]:
            changed = edit(current)
            self.check(name, changed, services.config)
            return canonical_texts(changed, self.options.get)

        await services.changes.cluster.change_config(self.path(name), checked, validate_only=validate_only)


def _check_client_metrics(name: str, properties: Mapping[str, str], _: BrokerConfig) -> None:
    parse_resource(name, properties)


def _check_group(_: str, properties: Mapping[str, str], broker: BrokerConfig) -> None:
    try:
        GroupConfig.parse(properties, broker)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


NAMED_RESOURCES: Mapping[int, NamedResources] = {
    ResourceType.CLIENT_METRICS: NamedResources(
        CLIENT_METRICS_OPTIONS,
        "Client metrics subscription name must not be empty",
        "Subscription name can't be empty",
        lambda image: image.client_metrics,
        layout.client_metrics_path,
        lambda overrides, _: client_metrics_entries(overrides),
        _check_client_metrics,
    ),
    ResourceType.GROUP: NamedResources(
        GROUP_OPTIONS,
        "Group name must not be empty",
        "Default group resources are not allowed.",
        lambda image: image.group_configs,
        layout.group_config_path,
        group_entries,
        _check_group,
    ),
}
"""By type of resource."""
