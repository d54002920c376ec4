"""Lists of subjects, versions, schemas and contexts, in pages.

Keeps true:  a page has at most `MAX_SUBJECTS` names or `MAX_SCHEMAS` schemas; more is read with `offset`. These are
             Confluent's limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from felice.dataclass import dataclass
from felice.registry import subjects
from felice.registry.errors import subject_not_found
from felice.registry.operations.answers import schema_answer
from felice.registry.rules import Json
from felice.registry.state import State, Subject, Version

MAX_SUBJECTS = 20_000
MAX_SCHEMAS = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list: `limit` entries from `offset`. A limit that is not positive, or too high, is the list's."""

    offset: int = 0
    limit: int = -1

    def of(self, found: Iterator[Json], highest: int) -> list[Json]:
        """The entries of the page."""
        start = max(self.offset, 0)
        count = self.limit if 0 < self.limit <= highest else highest
        return list(islice(found, start, start + count))


@dataclass(frozen=True, slots=True)
class Deletion:
    """Which entries a list has: those that are there, deleted ones too, or deleted ones only."""

    deleted: bool = False
    deleted_only: bool = False

    def takes(self, *, deleted: bool) -> bool:
        """Whether an entry belongs into the list."""
        return deleted if self.deleted_only else self.deleted or not deleted


def list_subjects(
    state: State,
    prefix: str,
    deletion: Deletion,
    page: Page,
    may_read: Callable[[str], bool] = lambda name: True,
) -> list[str]:
    """The names of subjects, sorted. A subject counts as deleted if all its versions are."""
    names = (
        name
        for name in state.names(prefix)
        if deletion.takes(deleted=_subject(state, name).active == 0) and may_read(name)
    )
    return page.of(names, MAX_SUBJECTS)


def list_versions(
    state: State, subject: str, deletion: Deletion, page: Page, *, negative: bool = False
) -> list[int]:
    """The versions of a subject, ascending. With `negative`, deleted ones are included as negative numbers."""
    found = state.subject(subject)
    with_deleted = negative or deletion.deleted or deletion.deleted_only
    if found is None or not state.has(subject, deleted=with_deleted):
        raise subject_not_found(subject)
    numbers = (
        -version.number if negative and version.deleted else version.number
        for version in found.versions
        if negative or deletion.takes(deleted=version.deleted)
    )
    return page.of(numbers, MAX_SUBJECTS)


def list_schemas(
    state: State,
    prefix: str,
    deletion: Deletion,
    page: Page,
    *,
    latest_only: bool = False,
    aliases: bool = False,
    rule_type: str | None = None,
    may_read: Callable[[str], bool] = lambda name: True,
) -> list[dict[str, Json]]:
    """The versions of all subjects, by subject and version."""
    names = _aliases(state, prefix) if aliases else {}
    found = (
        version
        for name in _with_targets(state, prefix, names)
        if may_read(name)
        for version in _listed(_subject(state, name).versions, deletion, latest_only=latest_only)
        if rule_type is None or _has_rule(version, rule_type)
    )
    made: list[dict[str, Json]] = []
    for version in page.of(found, MAX_SCHEMAS):
        answer = schema_answer(version)
        if version.subject in names:
            answer["aliases"] = names[version.subject]
        made.append(answer)
    return made


def _listed(versions: Sequence[Version], deletion: Deletion, *, latest_only: bool) -> Sequence[Version]:
    if latest_only:
        return next(((found,) for found in reversed(versions) if deletion.takes(deleted=found.deleted)), ())
    return [found for found in versions if deletion.takes(deleted=found.deleted)]


def _aliases(state: State, prefix: str) -> dict[str, list[str]]:
    """The subjects that aliases stand for, with the aliases that begin with `prefix`."""
    made: dict[str, list[str]] = {}
    for name, target in state.aliases():
        context, rest = subjects.split(name)
        within = (
            rest.startswith(prefix.removeprefix(subjects.WILDCARD))
            if prefix.startswith(subjects.WILDCARD)
            else context == subjects.context_of(prefix) and rest.startswith(subjects.split(prefix)[1])
        )
        if within:
            made.setdefault(target, []).append(name)
    return made


def _with_targets(state: State, prefix: str, names: dict[str, list[str]]) -> Iterator[str]:
    if not names:
        return state.names(prefix)
    targets = {target for target in names if state.subject(target) is not None}
    return iter(sorted(targets.union(state.names(prefix))))


def _has_rule(version: Version, rule_type: str) -> bool:
    rules = version.content.rules
    groups = () if rules is None else (rules.migration, rules.domain, rules.encoding)
    return any(rule.type == rule_type for group in groups for rule in group or ())


def _subject(state: State, name: str) -> Subject:
    found = state.subject(name)
    assert found is not None, f"{name} is listed, and has no versions"
    return found
