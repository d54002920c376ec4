"""The catalogue and the persistent queries of a server, as the commands that it has read made them. Pure.

Keeps true: the same commands give the same catalogue, queries and ids, on every server and after each restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from felice.dataclass import dataclass
from felice.pipelines.sql.catalogue import Catalogue, SourceInfo
from felice.pipelines.sql.compile.functions import Tools
from felice.pipelines.sql.compile.topology import Compilation, changed_state
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.processing_log import TOPIC_SETTING
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.sql.server.commands import Command
from felice.pipelines.sql.server.facts import Noted, Remembered
from felice.pipelines.sql.settings import COMPILED, short_name
from felice.pipelines.sql.statements import Analyst, Change, PersistentQuery, change_of, set_property
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import ControlQuery, SetProperty, Statement
from felice.pipelines.streams.app import App


@dataclass(frozen=True, slots=True)
class HeldQuery:
    """A persistent query of the server, with the settings of its statement."""

    query: PersistentQuery
    text: str
    settings: Mapping[str, str]
    users: Mapping[str, object]
    is_paused: bool = False
    own_settings: frozenset[str] = frozenset()
    """The names of the settings that the statement had. All other settings have the server's values."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a command does: its statement, the text of the statement without semicolon, and its change."""

    statement: Statement | None
    """None for `/ksql/terminate`."""
    text: str
    change: Change


TERMINATE_CLUSTER = "cluster/TerminateCluster/terminate"
"""The id of the command of `/ksql/terminate`. Its settings have the topics and subjects to delete."""
DELETED_TOPICS = "deleteTopicList"
DELETED_SUBJECTS = "deletedSubjects"


@dataclass(frozen=True, slots=True)
class _Built:
    """An application, and what it was built of."""

    query: PersistentQuery
    settings: Mapping[str, str]
    app: App

    def is_of(self, held: HeldQuery) -> bool:
        return self.query is held.query and self.settings == _compiled(held.settings)


class Engine:
    """See the module. `settings` are those of the server, under those of a statement; ALTER SYSTEM changes them."""

    def __init__(
        self,
        functions: FunctionTable,
        settings: Mapping[str, str],
        registry: Registry,
        *,
        numbers_queries: bool = True,
    ) -> None:
        self.functions, self.settings, self.registry = functions, dict(settings), registry
        self._numbers_queries = numbers_queries
        self.catalogue = Catalogue()
        self.queries: dict[str, HeldQuery] = {}
        self._apps: dict[str, _Built] = {}
        self._prepared: dict[str, _Built] = {}
        """The applications of statements that were analysed but not yet applied, by the ids of queries."""
        self.faults: Mapping[str, str] = {}
        """Why queries could not be built, by their ids, when they last had to run."""
        self.deleted_topics: Sequence[str] | None = None
        """The topics to delete when the cluster was terminated; None before."""
        self.deleted_subjects: Sequence[str] = ()
        self.commands = 0
        """How many commands were applied; the number of the next one."""

    def analyst(
        self, settings: Mapping[str, str], around: Noted | Remembered, *, is_replay: bool = False
    ) -> Analyst:
        """What a statement with these settings is analysed with."""
        settings = {**around.settings(self.settings), **settings}
        return Analyst(self.functions, settings, around, self._numbers_queries, is_replay)

    def change(
        self,
        given: Statement,
        text: str,
        settings: Mapping[str, str],
        around: Noted | Remembered,
        number: int | None = None,
    ) -> Change | None:
        """What a statement changes, which `apply` does; None for a statement of another kind. `number` is that of its
        command; without it, it is the next one. Raises `SqlError`.
        """
        catalogue = replace(self.catalogue, next_query=self.commands if number is None else number)
        analyst = self.analyst(settings, around, is_replay=number is not None)
        change = change_of(given, catalogue, analyst, text)
        if change is None and isinstance(given, ControlQuery):
            done = "Paused" if given.action == "PAUSE" else "Resumed"
            ids = self.ids(given)
            return Change(catalogue, f"{done} {', '.join(ids) or 'no query'}")
        if isinstance(given, SetProperty) and given.is_of_system:
            altered = self._altered(given)
            self._prepared |= {id: self._build(held) for id, held in altered.items()}
            if number is None:
                for held in altered.values():
                    _check_log(held)
            return Change(catalogue, f"System property {given.name} was set to '{given.value}'.")
        if change is not None and change.started is not None:
            self._check(change, analyst)
        return change

    def ids(self, given: ControlQuery) -> list[str]:
        """The queries that PAUSE, RESUME or TERMINATE names."""
        return list(self.catalogue.queries) if given.query is None else [given.query]

    def _check(self, change: Change, analyst: Analyst) -> None:
        """Build the application, so that a statement whose query cannot run is refused and never kept."""
        assert change.started is not None
        held = HeldQuery(change.started, "", analyst.settings, change.catalogue.types)
        built = self._build(held)
        if not analyst.is_replay:
            _check_log(held)
        before = self.queries.get(change.started.id)
        what = None if before is None else changed_state(before.query.plan, change.started.plan)
        if what is not None and not analyst.is_replay:
            raise SqlError(
                f"Cannot replace {change.started.sink.name}: {what} cannot change, because the query goes on with its "
                "state; drop it and create it again"
            )
        self._prepared[change.started.id] = built

    def read(self, command: Command) -> Read:
        """What a command does, which `apply` makes so; until then nothing changes. It may run in a thread, since it may
        take seconds. Raises `SqlError` for a command that this server does not understand, such as a call of a function
        that is no longer installed.
        """
        if command.id == TERMINATE_CLUSTER:
            return Read(None, command.statement, Change(Catalogue(), "The cluster was terminated."))
        (written,) = statements_of(command.statement, {})
        given, around = written.statement, Remembered(command.facts)
        change = self.change(given, written.text, command.settings, around, command.number)
        if change is None:
            raise SqlError(
                f"a command cannot be a statement of the kind {type(given).__name__}", given.position
            )
        return Read(given, written.text, change)

    def skip(self, command: Command) -> None:
        """Count a command that cannot be applied."""
        # A query has the numbers of its command. So it keeps its id, and with that its checkpoint, also where
        # a command before it cannot be applied.
        self.commands = max(self.commands, command.number + 1)
        self.catalogue = replace(self.catalogue, next_query=self.commands)

    def apply(self, command: Command, read: Read) -> None:
        """Apply a command, whose change was read with the catalogue as it is."""
        given, change = read.statement, read.change
        self.catalogue = change.catalogue
        if given is None:
            self.queries.clear()
            self.deleted_topics = json.loads(command.settings[DELETED_TOPICS])
            # Older servers deleted them before.
            self.deleted_subjects = json.loads(command.settings.get(DELETED_SUBJECTS, "[]"))
        if isinstance(given, SetProperty):
            self._alter(given)
        for id in change.stopped:
            self.queries.pop(id, None)
            self._prepared.pop(id, None)
        if change.started is not None:
            self.queries[change.started.id] = HeldQuery(
                change.started,
                read.text,
                {**self.settings, **command.settings},
                change.catalogue.types,
                own_settings=frozenset(command.settings),
            )
        if isinstance(given, ControlQuery) and given.action != "TERMINATE":
            for id in self.ids(given):
                self.queries[id] = replace(self.queries[id], is_paused=given.action == "PAUSE")
        self.skip(command)

    def _alter(self, given: SetProperty) -> None:
        """Change a setting of the server, and of the queries whose statement did not have it. They go on with their
        state and positions.
        """
        set_property(given, self.settings, {})
        for id, held in self.queries.items():
            self.queries[id] = _with(held, given)

    def _altered(self, given: SetProperty) -> dict[str, HeldQuery]:
        """The queries, as they are after ALTER SYSTEM, that have to be built again then."""
        changed = {id: (held, _with(held, given)) for id, held in self.queries.items()}
        return {
            id: after
            for id, (before, after) in changed.items()
            if _compiled(before.settings) != _compiled(after.settings)
        }

    def _build(self, held: HeldQuery) -> _Built:
        return _Built(held.query, _compiled(held.settings), self.app(held))

    def _known(self, held: HeldQuery) -> _Built | None:
        """The application of a query, if it is built already."""
        for one in (self._apps.get(held.query.id), self._prepared.get(held.query.id)):
            if one is not None and one.is_of(held):
                return one
        return None

    def app(self, held: HeldQuery) -> App:
        """The application of a query."""
        return Compilation(held.query.id, held.query.plan, self.tools(held.settings)).into(held.query.sink)

    def running_apps(self) -> dict[str, App]:
        """The applications of all queries that are not paused, by id. Each is compiled once. Those that cannot be
        built are missing, and `faults` says why.
        """
        made, faults = dict[str, _Built](), dict[str, str]()
        queries = dict(self.queries)
        for id, held in queries.items():
            try:
                made[id] = self._known(held) or self._build(held)
            except Exception as error:  # A query that cannot be built must not keep the others from running.
                faults[id] = str(error) or type(error).__name__
        self._apps, self._prepared, self.faults = made, {}, faults
        return {id: one.app for id, one in made.items() if not queries[id].is_paused}

    def retention_ms(self, source: SourceInfo) -> int | None:
        """How long the windows of a table stay, by event time; None for a table without windows, and for one that
        other programs write.
        """
        held = self.queries.get(source.query or "")
        grouping = None if held is None else held.query.plan.grouping
        if grouping is None or grouping.window is None:
            return None
        window = grouping.window
        return max(window.retention_ms, window.size_ms + window.grace_ms)

    def tools(self, settings: Mapping[str, str]) -> Tools:
        """What a plan with these settings is compiled with."""
        return Tools(self.functions, self.catalogue.types, settings, self.registry, None)

    def is_queryable(self, source: SourceInfo) -> bool:
        """Whether the server keeps the rows of a table, for SELECT without EMIT."""
        return source.is_table and (source.query is not None or source.is_read_only)


def _compiled(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Those settings that an application is built with."""
    return {name: settings[name] for name in COMPILED if name in settings}


def _with(held: HeldQuery, given: SetProperty) -> HeldQuery:
    """A query after ALTER SYSTEM. Settings that the query's statement had do not change."""
    if short_name(given.name) in held.own_settings:
        return held
    changed = dict(held.settings)
    set_property(given, changed, {})
    return replace(held, settings=changed)


def _check_log(held: HeldQuery) -> None:
    """Raise `SqlError` if the processing log would go to a topic of the query: log entries are not rows of it."""
    topic = held.settings.get(TOPIC_SETTING)
    if topic is not None and topic in {
        held.query.sink.topic,
        *(one.source.topic for one in held.query.plan.sides),
    }:
        raise SqlError(
            f"{TOPIC_SETTING} is {topic!r}, which {held.query.id} reads or writes; it must be another topic"
        )
