"""The applications of a file of SQL statements, and the topics that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import read_text

if TYPE_CHECKING:
    from felice.client.admin import AdminClient
    from felice.pipelines.sql.functions.table import FunctionTable
    from felice.pipelines.sql.programs import NeededTopic
    from felice.streams import App

SUFFIX = ".sql"
_CREATED_WITHIN_S = 30.0


def functions_of(extension_dir: Path | None = None) -> FunctionTable:
    """The functions that are always there, those of installed packages, and those of a directory."""
    from felice.pipelines.sql.functions import built_in
    from felice.pipelines.sql.user_functions import load_directory, load_entry_points

    functions = built_in().copy()
    try:
        functions.add_all(load_entry_points())
        if extension_dir is not None:
            functions.add_all(load_directory(extension_dir))
    except (OSError, ValueError) as error:
        raise Fault(str(error)) from None
    return functions


def apps_in_sql(
    path: Path, names: Sequence[str], client: Mapping[str, object], *, creates: bool
) -> list[App]:
    """The applications of a file with these names, or all. With `creates`, missing topics are created."""
    from felice.client.admin import AdminClient
    from felice.pipelines.sql.programs import program_of
    from felice.pipelines.sql.syntax.errors import SqlError

    with AdminClient(dict(client)) as admin:
        topics = admin.list_topics().topics
        partitions = {name: len(topic.partitions) for name, topic in topics.items()}
        try:
            program = program_of(read_text(path), partitions, functions_of())
        except SqlError as error:
            raise Fault(f"{path}, {error}") from None
        if creates:
            for topic in program.topics.values():
                _create(admin, topic)
    by_name = {app.name: app for app in program.apps}
    if not by_name:
        raise Fault(f"{path} has no query; CREATE … AS SELECT and INSERT INTO … SELECT make some")
    if unknown := [name for name in names if name not in by_name]:
        raise Fault(f"{path} has no query {unknown[0]!r}; it has {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names or by_name)]


def _create(admin: AdminClient, topic: NeededTopic) -> None:
    from felice.client import KafkaError, KafkaException
    from felice.client.admin import NewTopic

    new = NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(topic.config))
    try:
        admin.create_topics([new])[topic.name].result(_CREATED_WITHIN_S)
    except KafkaException as error:
        if error.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        click.echo(f"created topic {topic.name} with {topic.partitions} partitions", err=True)
