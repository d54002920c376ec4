"""`kafka-broker-api-versions`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool
from felice.cli.options import admin_client, command_config_option
from felice.client.admin import ApiVersionRange
from felice.client.error import KafkaException
from felice.protocol.api import API


@kafka_tool("kafka-broker-api-versions")
@bootstrap_server_option
@command_config_option
def kafka_broker_api_versions(bootstrap_server: str, command_config: Path | None) -> None:
    """Show which versions of which APIs each broker offers, and which of them this client would use.

    \b
    kafka-broker-api-versions --bootstrap-server localhost:9092
    """
    found = admin_client(bootstrap_server, command_config).list_api_versions().result()
    for node, offered in found.items():
        rack = "null" if node.rack is None else node.rack
        who = f"{node.host}:{node.port} (id: {node.id} rack: {rack} isFenced: false)"
        if isinstance(offered, KafkaException):
            click.echo(f"{who} -> ERROR: {offered.error.str()}")
        else:
            rows = ",\n\t".join(_lines(offered))
            click.echo(f"{who} -> (\n\t{rows}\n)")


def _lines(offered: Iterable[ApiVersionRange]) -> Iterator[str]:
    """One line for each API, sorted by key. APIs that only this client knows are UNSUPPORTED."""
    ranges = {row.key: row for row in offered}
    for key in sorted(ranges.keys() | API.by_key.keys()):
        name = API.by_key[key].name if key in API.by_key else "UNKNOWN"
        yield f"{name}({key}): {_range(ranges[key], known=key in API.by_key) if key in ranges else 'UNSUPPORTED'}"


def _range(row: ApiVersionRange, *, known: bool) -> str:
    text = (
        str(row.min_version)
        if row.min_version == row.max_version
        else f"{row.min_version} to {row.max_version}"
    )
    if not known:
        return text
    if row.usable is not None:
        return f"{text} [usable: {row.usable}]"
    return f"{text} [unusable: node too {'new' if row.min_version > API.by_key[row.key].accepted[-1] else 'old'}]"
