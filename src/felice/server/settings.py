"""The configuration in force on a broker: its file, under the dynamic values of the metadata image.

Keeps true: a dynamic value that cannot be parsed changes nothing; the last valid configuration stays in force.
"""

from __future__ import annotations

import logging

from felice.config import BrokerConfig, ConfigError, Listener, TopicConfig
from felice.metadata import ClusterImage, layout
from felice.server.config_entries import BrokerLayers

_log = logging.getLogger("felice.server")


class Settings:
    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.config = static

    def follow(self, image: ClusterImage, broker_id: int) -> None:
        """Takes the dynamic values of an image: those of this broker before those of all brokers."""
        dynamic = image.broker_configs
        changed = {**dynamic.get(layout.DEFAULT_ENTITY, {}), **dynamic.get(str(broker_id), {})}
        try:
            self.config = self.static.changed(changed)
        except ConfigError as error:
            _log.error("dynamic configuration is ignored", extra={"reason": str(error)})

    def topic_config(self, image: ClusterImage, topic: str) -> TopicConfig:
        try:
            return TopicConfig.parse(image.topic_configs.get(topic, {}), self.config)
        except ConfigError as error:
            _log.error("topic configuration is ignored", extra={"topic": topic, "reason": str(error)})
            return TopicConfig.parse({}, self.config)

    def layers(self, image: ClusterImage, broker_id: int) -> BrokerLayers:
        """The values by their place, as DescribeConfigs shows them."""
        dynamic = image.broker_configs
        return BrokerLayers(
            dynamic.get(str(broker_id), {}),
            dynamic.get(layout.DEFAULT_ENTITY, {}),
            {**self.static.originals, **self.static.without_effect},
            _derived(image, broker_id),
        )


def _derived(image: ClusterImage, broker_id: int) -> dict[str, str]:
    """Options that are not set, and what they come to: the addresses that clients are told."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return {}
    listeners = [Listener(name, found.host, found.port) for name, found in broker.endpoints.items()]
    return {"advertised.listeners": ",".join(map(str, listeners))}
