"""The registry without HTTP: reads answer from the state, writes go through the leader's lock, fence and topic.

Keeps true:  a write is decided on a state that has all earlier writes, and answered when it is in the state itself.
             Only the leader writes. A leader that may have lost its role raises `NotLeader` before it decides.
             Reads wait for nothing.
How:         one lock for all writes. A schema is parsed and compared before the lock is taken, on a thread if the texts
             are long; under the lock only the draft is made again, and compared with the first one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from felice.registry.errors import RegistryError, invalid_schema, timed_out
from felice.registry.journal import Journal
from felice.registry.leader import DEFAULT_GROUP
from felice.registry.leadership import Leadership, NotLeader
from felice.registry.operations import registration as registering
from felice.registry.operations.lookups import texts_of
from felice.registry.operations.registration import Draft
from felice.registry.parsing import Parser
from felice.registry.records import Record, SchemaValue
from felice.registry.requests import NO_ID, SchemaRequest
from felice.registry.state import State, Version

T = TypeVar("T")

_log = logging.getLogger("felice.registry")

INLINE_CHARACTERS = 4_000
"""Texts up to this length together are parsed and compared on the event loop: a thread would take longer."""

_NEVER_INLINE = "PROTOBUF"
"""The type whose parser waits for a process of its own."""

LOCK_TIMEOUT_S = 30.0
_THREADS = 2
_OPTIMISTIC_ATTEMPTS = 3


class Registry:
    """See the module. The caller starts and stops `journal`, and tells `leadership` what it learns."""

    def __init__(
        self,
        journal: Journal,
        leadership: Leadership,
        parser: Parser | None = None,
        *,
        cluster_id: str = "",
        group: str = DEFAULT_GROUP,
    ) -> None:
        self.journal = journal
        self.leadership = leadership
        self.cluster_id = cluster_id
        self.group = group
        self.parser = Parser() if parser is None else parser
        self._lock = asyncio.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="registry-schemas")
        self._preparing: asyncio.Task[None] | None = None
        leadership.on_mine = self._on_leading

    @property
    def state(self) -> State:
        """What was read of the topic. Only the journal changes it."""
        return self.journal.state

    def close(self) -> None:
        """Ends the threads. Waits for none."""
        if self._preparing is not None:
            self._preparing.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Writing ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """The right to decide and write, alone. Raises `NotLeader`, or `RegistryError` (50001, 50002)."""
        self.leadership.check()
        try:
            async with asyncio.timeout(LOCK_TIMEOUT_S):
                await self._lock.acquire()
        except TimeoutError:
            raise timed_out(f"Other writes took more than {LOCK_TIMEOUT_S:g} s") from None
        try:
            self.leadership.check()
            if not self.journal.is_ours:
                await self.journal.take_over()
                self.leadership.check()
            yield
        finally:
            self._lock.release()

    async def write(self, decide: Callable[[State], tuple[list[Record], T]]) -> T:
        """Decides on the current state, writes the records, and returns the answer when they are in the state."""
        async with self.writing():
            written, answer = decide(self.state)
            await self._write(written)
            return answer

    def _on_leading(self) -> None:
        self.journal.lose()
        if self._preparing is not None:
            self._preparing.cancel()
        self._preparing = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        """Takes the topic over, so that the first write does not wait for it."""
        try:
            async with self.writing():
                pass
        except NotLeader:
            return
        except RegistryError as error:
            _log.warning("the topic is not taken over yet", extra={"reason": str(error)})

    async def _write(self, written: list[Record]) -> None:
        if written:
            await self.journal.write(written)

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> SchemaValue:
        """Registers a schema, or finds the version of the subject that it is already."""
        found = await self._known(subject, request, normalize=normalize)
        if found is not None:
            return found
        self.leadership.check()
        registering.check_mode(self.state, subject, request)
        for attempt in range(_OPTIMISTIC_ATTEMPTS):
            drafted = self._draft(subject, request, normalize=normalize)
            text, reasons = await self._examined(drafted)
            async with self.writing():
                if self._draft(subject, request, normalize=normalize) != drafted:
                    if attempt < _OPTIMISTIC_ATTEMPTS - 1:
                        continue
                    drafted = self._draft(subject, request, normalize=normalize)
                    text, reasons = await self._examined(drafted)
                written, value = registering.registration(self.state, drafted, text, reasons)
                await self._write(written)
                return value
        raise AssertionError("the last attempt returns or raises")

    def _draft(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Draft:
        return registering.draft(self.state, subject, request, normalize=normalize)

    async def _known(self, subject: str, request: SchemaRequest, *, normalize: bool) -> SchemaValue | None:
        """The version that the subject has already. Any registry may answer with it."""
        if not request.text.strip() or not registering.answers_at_once(self.state, subject, request):
            return None
        found = await self._existing(subject, request, normalize=normalize)
        if found is None or request.id not in (NO_ID, found.id):
            return None
        return SchemaValue(subject, found.number, found.id, found.content)

    async def _existing(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Version | None:
        drafted = registering.draft(self.state, subject, request, normalize=normalize, for_lookup=True)
        text = await self._in_turn(drafted, lambda: registering.canonical(self.parser, drafted))
        return registering.existing(self.state, drafted, text)

    # Reading ----------------------------------------------------------------------------------------------------

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool
    ) -> Version:
        """The version of a subject that is this schema."""
        drafted = registering.draft(self.state, subject, request, normalize=normalize, for_lookup=True)
        text = await self._in_turn(drafted, lambda: registering.canonical(self.parser, drafted))
        return registering.look_up(self.state, drafted, text, deleted=deleted)

    async def incompatibilities(
        self, subject: str, request: SchemaRequest, *, number: int | None, normalize: bool
    ) -> list[str]:
        """Why a schema is not compatible with a version of a subject (None: with those that the level names)."""
        if not request.text.strip():
            raise invalid_schema("Empty schema")
        against = None if number is None else registering.check_against(self.state, subject, number)
        drafted = registering.draft(self.state, subject, request, normalize=normalize, against=against)
        return (await self._examined(drafted))[1]

    async def formatted(self, version: Version, form: str) -> str:
        """The text of a version in another form (`ParsedSchema.formatted`)."""
        content, referred = version.content, texts_of(self.state, version)

        def format_it() -> str:
            parsed = self.parser.parse(content.schema_type, content.text, referred, registered=True)
            return parsed.formatted(form)

        size = len(content.text) + sum(len(text) for _, text in referred)
        return await self._run(size, {content.schema_type}, format_it)

    async def _examined(self, drafted: Draft) -> tuple[str, list[str]]:
        """The canonical text of a schema, and why it is not compatible."""

        def examine() -> tuple[str, list[str]]:
            text = registering.canonical(self.parser, drafted)
            return text, registering.reasons(self.parser, drafted, text)

        return await self._in_turn(drafted, examine)

    async def _in_turn(self, drafted: Draft, work: Callable[[], T]) -> T:
        size = len(drafted.request.text) + sum(len(text) for _, text in drafted.referred)
        types = {drafted.request.schema_type}
        for version, referred in drafted.compared:
            size += len(version.content.text) + sum(len(text) for _, text in referred)
            types.add(version.content.schema_type)
        return await self._run(size, types, work)

    async def _run(self, size: int, types: Set[str], work: Callable[[], T]) -> T:
        if size <= INLINE_CHARACTERS and _NEVER_INLINE not in types:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
