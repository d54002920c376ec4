"""Options of quotas, and of the limits of connections."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from felice.config.listener_limits import CREATION_RATE
from felice.config.option import INT_MAX, ConfigError, Items, Kind, Scope, field_of, option
from felice.dataclass import dataclass


def parse_overrides(entries: Iterable[str]) -> dict[str, int]:
    """The limits by address. Raises ValueError."""
    found = {}
    for entry in entries:
        address, _, text = entry.rpartition(":")
        found[str(ip_address(address.strip("[]")))] = int(text)
        if int(text) < 0:
            raise ValueError(f"the limit of {address} is negative")
    return found


def _fault_of_overrides(entries: tuple[str, ...]) -> str | None:
    try:
        parse_overrides(entries)
    except ValueError as error:
        return f"expected address:number, separated by commas: {error}"
    return None


@dataclass(frozen=True, slots=False)
class QuotaOptions:
    """Quotas, and limits of connections."""

    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "Connections that one address may have open at once. 0 lets only those addresses connect that have a limit in "
        "max.connections.per.ip.overrides.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = option(
        "max.connections.per.ip.overrides",
        Kind.LIST,
        (),
        "Limits of single addresses instead of max.connections.per.ip: address:number, separated by commas. Names of "
        "hosts are not looked up. 0 shuts an address out, but not the broker's own machine.",
        scope=Scope.CLUSTER_WIDE,
        items=Items.TEXT,
        internal_check=_fault_of_overrides,
    )
    max_connection_creation_rate: int = field_of(CREATION_RATE)
    quota_window_num: int = option(
        "quota.window.num",
        Kind.INT,
        11,
        "Samples over which the bytes and the time of a client are measured against its quota.",
        minimum=1,
    )
    quota_window_size_seconds: int = option(
        "quota.window.size.seconds", Kind.INT, 1, "The length of one of these samples.", minimum=1
    )
    controller_quota_window_num: int = option(
        "controller.quota.window.num",
        Kind.INT,
        11,
        "Samples of the quota of partitions that a client creates and deletes: it may use the allowance of all of them "
        "at once.",
        minimum=1,
    )
    controller_quota_window_size_seconds: int = option(
        "controller.quota.window.size.seconds", Kind.INT, 1, "The length of one of these samples.", minimum=1
    )

    @property
    def per_ip_overrides(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address."""
        return parse_overrides(self.max_connections_per_ip_overrides)

    def connections_of(self, address: str) -> int:
        """How many connections an address may have open at once."""
        return self.per_ip_overrides.get(address, self.max_connections_per_ip)

    def check_addresses(self) -> None:
        """Raises `ConfigError` if no address could connect, to set a limit back for example."""
        overrides = self.per_ip_overrides
        if self.max_connections_per_ip == 0 and not any(overrides.values()):
            raise ConfigError(
                "max.connections.per.ip",
                0,
                "it can be 0 only if max.connections.per.ip.overrides has an address that may connect",
            )
        for address, limit in overrides.items():
            if limit == 0 and ip_address(address).is_loopback:
                raise ConfigError(
                    "max.connections.per.ip.overrides",
                    f"{address}:0",
                    "the broker's own machine must be able to connect; the least value is 1",
                )
