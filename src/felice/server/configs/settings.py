"""The configuration in force on a broker: its file, overridden by the dynamic values of the metadata image.

Keeps true: a dynamic value that cannot be used is logged and has no effect. The other values are in force; if they
            contradict each other, the last valid configuration stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from felice.config import BrokerConfig, ConfigError, Listener, TopicConfig, canonical_texts
from felice.metadata import ClusterImage, layout
from felice.server.configs.entries import BrokerLayers, named_option

_log = logging.getLogger("felice.server")


class Settings:
    """The file and the dynamic values of one broker."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.config = static
        self._file = {**static.originals, **canonical_texts(static.without_effect, named_option)}
        self._reasons: list[str] = []
        # Called in this order, with the configuration in force, after each change of a dynamic value.
        self.on_change: list[Callable[[BrokerConfig], None]] = []

    def follow(self, image: ClusterImage, broker_id: int) -> None:
        """Applies the dynamic values of an image. Those of this broker override those of all brokers."""
        dynamic = image.broker_configs
        changed = {**dynamic.get(layout.DEFAULT_ENTITY, {}), **dynamic.get(str(broker_id), {})}
        faults: list[ConfigError] = []
        if not changed:
            self.config = self.static
        else:
            # Only now, because most brokers start without dynamic values.
            from felice.server.configs.dynamic import usable

            config, faults = usable(self.static, changed)
            self.config = config or self.config
        reasons = [str(fault) for fault in faults]
        if reasons != self._reasons:
            self._reasons = reasons
            for fault in faults:
                _log.error(
                    "a dynamic configuration cannot be used",
                    extra={
                        "reason": str(fault),
                        "undo": f"kafka-configs --alter --delete-config {fault.name}, for the broker or all brokers",
                    },
                )
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
            canonical_texts(dynamic.get(str(broker_id), {}), named_option),
            canonical_texts(dynamic.get(layout.DEFAULT_ENTITY, {}), named_option),
            self._file,
            _derived(image, broker_id, self.static),
        )


def _derived(image: ClusterImage, broker_id: int, static: BrokerConfig) -> dict[str, str]:
    """Returns the values of unset options that this broker derives.

    These are the addresses that it gives to clients, and the protocol with which it connects to other brokers.
    """
    between_brokers = static.security_of(static.inter_broker_listener).protocol
    derived = {"security.inter.broker.protocol": between_brokers}
    broker = image.brokers.get(broker_id)
    if broker is not None:
        listeners = [Listener(name, found.host, found.port) for name, found in broker.endpoints.items()]
        derived["advertised.listeners"] = ",".join(map(str, listeners))
    return derived
