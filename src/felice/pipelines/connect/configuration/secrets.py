"""Values of options that are kept elsewhere: `${file:/path:key}` and the like, by the worker's `config.providers`.

Keeps true:  a reference is replaced only where its value is used: when a configuration is checked, and when a connector
             or a task starts. What is stored and shown has the reference.
Source:      Kafka Connect's `WorkerConfigTransformer`; the reverse for configurations of tasks is that of
             `AbstractHerder.reverseTransform`.
"""

from __future__ import annotations

from collections.abc import Mapping

from felice.config.broker_options import PROVIDER_PREFIX, PROVIDERS
from felice.config.option import ConfigError as WrongOption
from felice.config.references import Sources, resolve
from felice.env.variables import SystemSources
from felice.pipelines.connect.model.errors import ConfigError


class Secrets:
    """Replaces references with the providers of a worker."""

    def __init__(self, worker: Mapping[str, str], sources: Sources | None = None) -> None:
        """`worker` has the worker's options. Raises `ConfigError` for a provider that cannot be used."""
        self._providers = {
            name: text
            for name, text in worker.items()
            if name == PROVIDERS or name.startswith(PROVIDER_PREFIX)
        }
        self._sources = sources or SystemSources()
        self.resolved({})

    def resolved(self, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration with values in place of references. Raises `ConfigError`, which tells no value."""
        try:
            found = resolve({**config, **self._providers}, self._sources, lambda name: False).properties
        except WrongOption as error:
            raise ConfigError(
                f"the option {error.name} has the value {error.value}: {error.reason}"
            ) from None
        return {name: found[name] for name in config}


def with_references(
    task: Mapping[str, str], raw: Mapping[str, str], resolved: Mapping[str, str]
) -> dict[str, str]:
    """The configuration of a task as it may be stored: options that hold a value of a reference get the reference.

    `raw` and `resolved` are the connector's configuration with references and with their values.
    """
    return {
        name: raw[name] if name in raw and raw[name] != resolved[name] and resolved[name] == value else value
        for name, value in task.items()
    }
