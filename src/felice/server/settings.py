"""The configuration in force on a broker: its file, overridden by the dynamic values of the metadata image.

Keeps true: a dynamic value that cannot be parsed has no effect; the last valid configuration stays in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from felice.config import BrokerConfig, ConfigError, Listener, TopicConfig
from felice.metadata import ClusterImage, layout
from felice.server.config_entries import BrokerLayers

_log = logging.getLogger("felice.server")


class Settings:
    """The file and the dynamic values of one broker."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.config = static
        # Called in this order, with the configuration in force, after each change of a dynamic value.
        self.on_change: list[Callable[[BrokerConfig], None]] = []

    def follow(self, image: ClusterImage, broker_id: int) -> None:
        """Applies the dynamic values of an image. Those of this broker override those of all brokers."""
        dynamic = image.broker_configs
        changed = {**dynamic.get(layout.DEFAULT_ENTITY, {}), **dynamic.get(str(broker_id), {})}
        try:
            self.config = self.static.changed(changed)
        except ConfigError as error:
            _log.error("dynamic configuration is ignored", extra={"reason": str(error)})
        for listener in self.on_change:
            listener(self.config)

    def topic_config(self, image: ClusterImage, topic: str) -> TopicConfig:
        """Returns the effective configuration of a topic. Invalid values in the image are logged and ignored."""
        try:
            return TopicConfig.parse(image.topic_configs.get(topic, {}), self.config)
        except ConfigError as error:
            _log.error("topic configuration is ignored", extra={"topic": topic, "reason": str(error)})
            return TopicConfig.parse({}, self.config)

    def layers(self, image: ClusterImage, broker_id: int) -> BrokerLayers:
        """Returns the values by source, as DescribeConfigs shows them."""
        dynamic = image.broker_configs
        return BrokerLayers(
            dynamic.get(str(broker_id), {}),
            dynamic.get(layout.DEFAULT_ENTITY, {}),
            {**self.static.originals, **self.static.without_effect},
            _derived(image, broker_id),
        )


def _derived(image: ClusterImage, broker_id: int) -> dict[str, str]:
    """Returns the values of unset options that this broker derives: the addresses that it gives to clients."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return {}
    listeners = [Listener(name, found.host, found.port) for name, found in broker.endpoints.items()]
    return {"advertised.listeners": ",".join(map(str, listeners))}
