"""The times of all groups: from the broker's options and the configurations of groups in the cluster's image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from felice.config import BrokerConfig, ConfigError, shortened
from felice.config.group import GroupConfig
from felice.coordinator.group.modern.settings import GroupTimes, consumer_times
from felice.metadata import ClusterImage

_log = logging.getLogger("felice.coordinator")


class ConfiguredTimes:
    """`config` and `image` return the broker's configuration and the image now: a change applies at the next call."""

    def __init__(self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]) -> None:
        self._config_now = config
        self._image = image
        self._config = config()
        self._usual = consumer_times(GroupConfig.of(self._config))
        self._configs: Mapping[str, Mapping[str, str]] = {}
        # Of groups with configurations, since one of these changed: heartbeats ask for the times again and again.
        self._own: dict[str, GroupTimes] = {}

    def of(self, group_id: str) -> GroupTimes:
        """The times of a group, which need not exist."""
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
            # A limit of this broker was tightened later, or an operator changed the store.
            extra = {"group": shortened(group_id), "reason": str(error)}
            _log.warning("a group's configuration is not as stored, because it breaks a rule", extra=extra)
            return GroupConfig.in_force(overrides, self._config)
