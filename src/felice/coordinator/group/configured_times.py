"""The session timeouts and intervals of all groups: from the options of the group, or else of the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from felice.config import BrokerConfig, ConfigError, shortened
from felice.config.group import GroupConfig
from felice.coordinator.group.modern.settings import GroupTimes, consumer_times
from felice.metadata import ClusterImage

_log = logging.getLogger("felice.coordinator")


class ConfiguredTimes:
    """`config` and `image` return the broker's current configuration and image: `of` uses changes at once."""

    def __init__(self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]) -> None:
        self._config_now = config
        self._image = image
        self._config = config()
        self._usual = consumer_times(GroupConfig.of(self._config))
        self._configs: Mapping[str, Mapping[str, str]] = {}
        # A cache for groups with options, because each heartbeat needs them. Any change of a configuration empties it.
        self._own: dict[str, GroupTimes] = {}

    def of(self, group_id: str) -> GroupTimes:
        """The timeout and intervals of a group; the group need not exist."""
        configs, config = self._image().group_configs, self._config_now()
        if configs is not self._configs or config is not self._config:
            self._configs, self._own = configs, {}
            self._config, self._usual = config, consumer_times(GroupConfig.of(config))
        overrides = configs.get(group_id)
        if overrides is None:
            return self._usual
        times = self._own.get(group_id)
        if times is None:
            times = self._own[group_id] = consumer_times(self._config_of(group_id, overrides))
        return times

    def _config_of(self, group_id: str, overrides: Mapping[str, str]) -> GroupConfig:
        try:
            return GroupConfig.parse(overrides, self._config)
        except ConfigError as error:
            # After the value was stored, a limit was tightened, or an operator edited the metadata store.
            extra = {"group": shortened(group_id), "reason": str(error)}
            _log.warning(
                "the stored options of a group break a rule, so the broker uses other values", extra=extra
            )
            return GroupConfig.in_force(overrides, self._config)
