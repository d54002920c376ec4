"""Features: the levels that brokers support, the levels that the cluster has finalized, and changing these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, key_values
from felice.cli.output import show

if TYPE_CHECKING:
    from felice.client.admin import AdminClient


class FeatureRow(TypedDict):
    """A feature: the levels that all brokers support, and the finalized level since `epoch`."""

    feature: str
    min: int
    max: int
    level: int
    epoch: int


def describe(admin: AdminClient) -> list[FeatureRow]:
    """One row for each feature. Level 0 means that the feature is disabled."""
    found = admin.describe_features().result()
    return [
        {
            "feature": name,
            "min": lowest,
            "max": highest,
            "level": found.finalized.get(name, 0),
            "epoch": found.epoch,
        }
        for name, (lowest, highest) in sorted(found.supported.items())
    ]


def parse_levels(texts: Iterable[str]) -> dict[str, int]:
    """Reads texts such as `transaction.version=2` as levels by feature."""
    levels = {}
    for name, text in key_values(texts).items():
        if not text.isdecimal():
            raise Fault(f"expected feature=level, got {name}={text}")
        levels[name] = int(text)
    return levels


def update(admin: AdminClient, levels: dict[str, int], kind: str, *, dry_run: bool) -> None:
    """Changes levels. Raises the first error; in that case no level has changed."""
    from felice.client.admin import FeatureUpdate, UpgradeType

    updates = [FeatureUpdate(name, level, UpgradeType[kind]) for name, level in levels.items()]
    admin.update_features(updates, validate_only=dry_run).result()


levels_argument = click.argument("levels", nargs=-1, required=True, metavar="FEATURE=LEVEL…")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Check whether the change is possible; change nothing."
)


@click.group(cls=CommandGroup)
def features() -> None:
    """Show and change the finalized feature levels of the cluster.

    \b
    felice features describe
    felice features upgrade transaction.version=2
    felice features downgrade transaction.version=1
    """


@features.command("describe")
@connection_options
@json_option
def describe_command(bootstrap: str, command_config: Path | None, as_json: bool) -> None:
    """Show the levels that brokers support, and the finalized level.

    \b
    felice features describe
    """
    show(describe(admin_client(bootstrap, command_config)), as_json, empty="The brokers have no features.")


@features.command("upgrade")
@levels_argument
@connection_options
@dry_run_option
def upgrade_command(
    levels: tuple[str, ...], bootstrap: str, command_config: Path | None, dry_run: bool
) -> None:
    """Raise feature levels; clients follow when they next connect.

    \b
    felice features upgrade transaction.version=2
    """
    _change(admin_client(bootstrap, command_config), levels, "UPGRADE", dry_run)


@features.command("downgrade")
@levels_argument
@connection_options
@dry_run_option
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses metadata.")
def downgrade_command(
    levels: tuple[str, ...], bootstrap: str, command_config: Path | None, dry_run: bool, unsafe: bool
) -> None:
    """Lower feature levels; level 0 disables a feature.

    \b
    felice features downgrade transaction.version=1
    """
    kind = "UNSAFE_DOWNGRADE" if unsafe else "SAFE_DOWNGRADE"
    _change(admin_client(bootstrap, command_config), levels, kind, dry_run)


def _change(admin: AdminClient, texts: Iterable[str], kind: str, dry_run: bool) -> None:
    levels = parse_levels(texts)
    update(admin, levels, kind, dry_run=dry_run)
    for name, level in levels.items():
        click.echo(f"{name} {'can be' if dry_run else 'is'} at level {level}{'' if dry_run else ' now'}.")
