"""`kafka-features`."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.features import describe, parse_levels, update
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool_group
from felice.cli.options import admin_client, command_config_option
from felice.client.error import KafkaException

feature_option = click.option(
    "--feature", "texts", multiple=True, required=True, metavar="FEATURE=LEVEL", help="May be repeated."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Validate, and change nothing.")


@kafka_tool_group("kafka-features")
@bootstrap_server_option
@command_config_option
@click.pass_context
def kafka_features(context: click.Context, bootstrap_server: str, command_config: Path | None) -> None:
    """Describe, upgrade, downgrade or disable the features of a cluster.

    \b
    kafka-features --bootstrap-server localhost:9092 describe
    """
    context.obj = (bootstrap_server, command_config)


@kafka_features.command("describe")
@click.pass_obj
def describe_command(where: tuple[str, Path | None]) -> None:
    """Print what is supported, and what the cluster has finalized.

    \b
    kafka-features --bootstrap-server localhost:9092 describe
    """
    for row in describe(admin_client(*where)):
        epoch = row["epoch"] if row["epoch"] >= 0 else "-"
        click.echo(
            f"Feature: {row['feature']:<42}SupportedMinVersion: {row['min']:<17}"
            f"SupportedMaxVersion: {row['max']:<17}FinalizedVersionLevel: {row['level']:<17}Epoch: {epoch}"
        )


@kafka_features.command("upgrade")
@feature_option
@dry_run_option
@click.pass_obj
def upgrade_command(where: tuple[str, Path | None], texts: tuple[str, ...], dry_run: bool) -> None:
    """Raise features to higher levels.

    \b
    kafka-features --bootstrap-server localhost:9092 upgrade --feature transaction.version=2
    """
    _change(where, parse_levels(texts), "UPGRADE", "upgrade", dry_run)


@kafka_features.command("downgrade")
@feature_option
@dry_run_option
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses metadata.")
@click.pass_obj
def downgrade_command(
    where: tuple[str, Path | None], texts: tuple[str, ...], dry_run: bool, unsafe: bool
) -> None:
    """Lower features to older levels.

    \b
    kafka-features --bootstrap-server localhost:9092 downgrade --feature transaction.version=1
    """
    _change(where, parse_levels(texts), _kind(unsafe), "downgrade", dry_run)


@kafka_features.command("disable")
@click.option("--feature", "names", multiple=True, required=True, metavar="FEATURE", help="May be repeated.")
@dry_run_option
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses metadata.")
@click.pass_obj
def disable_command(
    where: tuple[str, Path | None], names: tuple[str, ...], dry_run: bool, unsafe: bool
) -> None:
    """Switch features off, as a downgrade to level 0.

    \b
    kafka-features --bootstrap-server localhost:9092 disable --feature transaction.version
    """
    _change(where, dict.fromkeys(names, 0), _kind(unsafe), "disable", dry_run)


def _kind(unsafe: bool) -> str:
    return "UNSAFE_DOWNGRADE" if unsafe else "SAFE_DOWNGRADE"


def _change(
    where: tuple[str, Path | None], levels: dict[str, int], kind: str, verb: str, dry_run: bool
) -> None:
    to = {name: "" if verb == "disable" else f" to {level}" for name, level in sorted(levels.items())}
    try:
        update(admin_client(*where), levels, kind, dry_run=dry_run)
    except KafkaException as error:
        for name, level in to.items():
            click.echo(f"Could not {verb} {name}{level}. {error.args[0].str()}")
        raise Fault(f"{len(to)} out of {len(to)} operation(s) failed.") from None
    past = f"{verb}d" if verb.endswith("e") else f"{verb}ed"
    for name, level in to.items():
        click.echo(f"{name} {'can be' if dry_run else 'was'} {past}{level}.")
