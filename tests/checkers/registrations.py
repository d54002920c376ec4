"""What clients wrote at several registries of one topic and read there, against what they hold at the end.

Every answer that said yes is still true at the end. An id belongs to one schema, and a schema has one id, also in each
look-up meanwhile. Ids grow: a schema that was first asked for after an answer has a higher id than that answer.
Versions of a subject are numbered from 1 without gaps. Nothing is registered that no client asked for.

A deletion that was answered holds, and nothing is deleted that no client asked for. A setting has the value of its
client's last answered request, or of one whose answer did not come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Registration:
    """A client's request to register a schema. `schema_id` is None unless a registry answered with an id.

    Without an answer the schema may be registered or not.
    """

    subject: str
    text: str
    asked_s: float
    schema_id: int | None = None
    answered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject as it was read."""

    subject: str
    version: int
    schema_id: int
    text: str


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The text that a registry gave for an id."""

    schema_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """A client's request to delete a version softly. Without an answer it may be deleted or not."""

    subject: str
    version: int
    answered: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """A client's request to set the level of a subject that no other client sets."""

    subject: str
    level: str
    answered: bool


def registration_anomalies(
    asked: Iterable[Registration],
    found: Iterable[Registered],
    seen: Iterable[Registered] = (),
    looked_up: Iterable[LookedUp] = (),
) -> list[str]:
    """Anomalies of the versions `found` at the end, deleted ones too, and of those that clients had `seen` before."""
    asked, found, seen = list(asked), list(found), list(seen)
    answered = [one for one in asked if one.schema_id is not None]
    return [
        *_one_to_one([*answered, *found, *seen, *looked_up]),
        *_lost(answered, found),
        *_changed(seen, found),
        *_unasked(asked, found),
        *_numbered(found),
        *_ordered(asked),
    ]


def deletion_anomalies(
    deletions: Iterable[Deletion], found: Iterable[Registered], live: Iterable[Registered]
) -> list[str]:
    """Anomalies of the versions that are not deleted at the end (`live`), of all that were `found`."""
    deletions, left = list(deletions), {(one.subject, one.version) for one in live}
    wanted = {(one.subject, one.version) for one in deletions}
    back = [one for one in deletions if one.answered and (one.subject, one.version) in left]
    gone = [one for one in found if (one.subject, one.version) not in left | wanted]
    return [
        *(f"not deleted: {one}" for one in back),
        *(f"deleted, and nobody asked for it: {one}" for one in gone),
    ]


def setting_anomalies(settings: Iterable[Setting], found: Mapping[str, str]) -> list[str]:
    """Anomalies of the levels at the end, by requests in the order of each client. A subject may have none."""
    last: dict[str, str] = {}
    allowed: dict[str, set[str]] = {}
    for one in settings:
        if one.answered:
            last[one.subject] = one.level
        else:
            allowed.setdefault(one.subject, set()).add(one.level)
    faults = [
        f"setting: {subject} has {found.get(subject)}, its last answer said {level}"
        for subject, level in last.items()
        if found.get(subject) not in {level, *allowed.get(subject, ())}
    ]
    unasked = [
        f"setting: {subject} has {level}, which nobody asked for"
        for subject, level in found.items()
        if level not in {last.get(subject), *allowed.get(subject, ())} and subject not in last
    ]
    return faults + unasked


def _one_to_one(pairs: Iterable[Registration | Registered | LookedUp]) -> list[str]:
    texts: dict[int, str] = {}
    ids: dict[str, int] = {}
    faults = []
    for one in pairs:
        assert one.schema_id is not None
        if texts.setdefault(one.schema_id, one.text) != one.text:
            faults.append(
                f"two schemas: id {one.schema_id} is that of {texts[one.schema_id]} and of {one.text}"
            )
        if ids.setdefault(one.text, one.schema_id) != one.schema_id:
            faults.append(f"two ids: {one.text} has {ids[one.text]} and {one.schema_id}")
    return faults


def _lost(answered: list[Registration], found: list[Registered]) -> list[str]:
    kept = {(one.subject, one.text): one.schema_id for one in found}
    faults = []
    for one in answered:
        schema_id = kept.get((one.subject, one.text))
        if schema_id is None:
            faults.append(f"lost: {one}")
        elif schema_id != one.schema_id:
            faults.append(f"changed: {one} has the id {schema_id} now")
    return faults


def _changed(seen: list[Registered], found: list[Registered]) -> list[str]:
    now = {(one.subject, one.version): one for one in found}
    return [
        f"changed: {one} is {now.get((one.subject, one.version))} now"
        for one in seen
        if now.get((one.subject, one.version)) != one
    ]


def _unasked(asked: list[Registration], found: list[Registered]) -> list[str]:
    wanted = {(one.subject, one.text) for one in asked}
    return [f"not asked for: {one}" for one in found if (one.subject, one.text) not in wanted]


def _numbered(found: list[Registered]) -> list[str]:
    numbers: dict[str, list[int]] = {}
    for one in found:
        numbers.setdefault(one.subject, []).append(one.version)
    return [
        f"numbers: the versions of {subject} are {sorted(given)}"
        for subject, given in numbers.items()
        if sorted(given) != list(range(1, len(given) + 1))
    ]


def _ordered(asked: list[Registration]) -> list[str]:
    first_s = _first_asked(asked)
    answered = sorted(
        (one for one in asked if one.schema_id is not None),
        key=lambda one: (first_s[one.text], one.answered_s),
    )
    # The highest id that was answered before a schema was first asked for: answers in the order of their times.
    answers = sorted(answered, key=lambda one: one.answered_s)
    faults, position, highest = [], 0, 0
    for one in answered:
        assert one.schema_id is not None
        while position < len(answers) and answers[position].answered_s < first_s[one.text]:
            highest = max(highest, answers[position].schema_id or 0)
            position += 1
        if one.schema_id <= highest:
            faults.append(f"back: {one} was first asked for after the id {highest} was answered")
    return faults


def _first_asked(asked: list[Registration]) -> Mapping[str, float]:
    first: dict[str, float] = {}
    for one in asked:
        first[one.text] = min(first.get(one.text, one.asked_s), one.asked_s)
    return first
