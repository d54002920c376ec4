"""Starting a broker: with nothing but a directory, or from Kafka's own configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.options import key_values
from felice.config import BrokerConfig, parse_properties

# A broker that stands alone cannot have three replicas of anything (Kafka's shipped files say the same).
_SINGLE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Listen here; others can connect only if told so."
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=9092, show_default=True, help="0 picks a free one."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("felice-data"),
    show_default=True,
)
@click.option(
    "--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="Any broker option; may come often."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
)
def start(
    host: str, port: int, data_dir: Path, options: tuple[str, ...], log_format: str, log_level: str
) -> None:
    """Start a broker with an embedded store; needs nothing else.

    \b
    felice start
    felice start --port 0 --data-dir /tmp/data -o num.partitions=3

    Nothing authenticates yet, so it listens to this machine alone unless --host
    says otherwise. Stop it with Ctrl-C; it leaves its data behind.
    """
    address = f"[{host}]" if ":" in host else host
    properties = {"listeners": f"PLAINTEXT://{address}:{port}", "log.dirs": str(data_dir), **_SINGLE_BROKER}
    properties.update(key_values(options))
    _run(properties, log_format, log_level)


@click.command()
@click.argument("properties_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Overrides the file; may come often."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def broker(properties_file: Path, overrides: tuple[str, ...], log_format: str, log_level: str) -> None:
    """Start a broker from a server.properties file in Kafka's own keys.

    \b
    felice broker server.properties --override num.partitions=3
    """
    try:
        text = properties_file.read_text()
    except UnicodeDecodeError as error:
        raise Fault(f"{properties_file} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    _run({**parse_properties(text), **key_values(overrides)}, log_format, log_level)


def _run(properties: dict[str, str], log_format: str, log_level: str) -> None:
    from felice.server import broker as server

    config, unknown = BrokerConfig.parse(properties)
    for name in unknown:
        click.echo(f"warning: unknown option {name} is ignored", err=True)
    server.run(
        config,
        log_format=log_format,
        log_level=log_level,
        on_ready=lambda where: click.echo(_ready_line(where)),
    )


def _ready_line(listeners: list[str]) -> str:
    return f"Felice is ready on {', '.join(listeners)}"
