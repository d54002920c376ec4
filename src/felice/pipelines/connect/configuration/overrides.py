"""Which options of a task's clients a connector may override (KIP-458), as the worker's policy says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from felice.pipelines.connect.configuration.definitions import ConfigValue, Type, parse_value
from felice.pipelines.connect.configuration.worker import Client

OVERRIDE_POLICY, ALLOWED_OVERRIDES = (
    "connector.client.config.override.policy",
    "connector.client.config.override.allowlist",
)
POLICIES = ("All", "None", "Principal", "Allowlist")
_PRINCIPAL = frozenset(("sasl.jaas.config", "sasl.mechanism", "security.protocol"))
_PREFIXES = tuple(f"{client.value}.override." for client in Client)


def refused_overrides(worker: Mapping[str, str], connector: Mapping[str, str]) -> Iterator[ConfigValue]:
    """The options of a connector that the worker's policy does not allow."""
    policy = worker.get(OVERRIDE_POLICY, POLICIES[0]).strip()
    if policy == "All":
        return
    allowed = _PRINCIPAL if policy == "Principal" else frozenset[str]()
    if policy == "Allowlist":
        allowed = frozenset(parse_value(ALLOWED_OVERRIDES, worker.get(ALLOWED_OVERRIDES, ""), Type.LIST))
    for name, value in connector.items():
        prefix = next((one for one in _PREFIXES if name.startswith(one)), None)
        if prefix is not None and (option := name.removeprefix(prefix)) not in allowed:
            error = f"The '{policy}' policy does not allow '{option}' to be overridden in the connector configuration."
            yield ConfigValue(name, value, errors=(error,))
