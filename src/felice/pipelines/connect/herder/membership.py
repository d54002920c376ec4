"""The membership of a worker in its group: what it is given, who leads, and when the group divides again.

Keeps true:  a worker whose session may be over has no work: everything stops, because another worker may have it.
             What a worker says that it runs holds all that it was given and all that still runs.
             After work was taken away and has stopped, the group divides again, so that another worker gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from felice.client.error import KafkaException
from felice.client.group.election import Assignment, Election, Roles
from felice.env.clock import set_within
from felice.pipelines.connect.herder.division import (
    PROTOCOL,
    PROTOCOL_TYPE,
    Divider,
    Division,
    Member,
    Work,
)
from felice.pipelines.connect.herder.errors import NotHere
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.storage.configs import ConfigState, TargetState

_log = logging.getLogger("felice.connect.herder")


class WorkerGroup:
    """See the module (`Group`). The callbacks are set before `start`, and called on the event loop."""

    def __init__(
        self,
        client: Mapping[str, object],
        group: str,
        url: Callable[[], str],
        configs: ConfigState,
        *,
        session_timeout_s: float,
        heartbeat_interval_s: float,
        delay_s: float,
    ) -> None:
        self._url = url
        self._configs = configs
        self._divider = Divider(delay_s)
        self._own = Work()
        self._division: Division | None = None
        self._divided = Work()
        """What the last division of this worker, as the leader, was about."""
        self._changed = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.generation = 0
        self.on_work: Callable[[], None] = lambda: None
        """Called when this worker's work has changed."""
        self.on_lead: Callable[[], None] = lambda: None
        """Called when this worker leads."""
        self.runs: Callable[[], Work] = Work
        """What runs on this worker, or did not end yet."""
        self.settled: Callable[[str], Awaitable[None]]
        """Returns when nothing is left to do for a connector."""
        roles = Roles(self._assign, self._on_assigned, self._on_revoked)
        self._election = Election(
            client,
            group,
            PROTOCOL_TYPE,
            PROTOCOL,
            self._metadata,
            roles,
            session_timeout_s=session_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
        )

    async def start(self, timeout_s: float) -> None:
        """Joins the group, and waits for its first division. Raises `ConnectError`."""
        try:
            await self._election.start(timeout_s)
        except KafkaException as error:
            raise ConnectError(
                f"cannot join the group of workers {self._election.group_id}: {error.error.str()}"
            ) from error

    async def stop(self) -> None:
        """Leaves the group. Everything must have stopped before."""
        if self._timer is not None:
            self._timer.cancel()
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)
        await self._election.stop()

    # The group for others (`Group`)

    def has_connector(self, name: str) -> bool:
        """As `Group.has_connector`."""
        return name in self._own.connectors

    def has_task(self, task: TaskId) -> bool:
        """As `Group.has_task`."""
        return task in self._own.tasks

    def check_leads(self) -> None:
        """As `Group.check_leads`."""
        found = self._current()
        if found.leader != self._url():
            raise NotHere(found.leader)

    def check_owns_connector(self, name: str) -> None:
        """As `Group.check_owns_connector`."""
        if not self.has_connector(name):
            raise NotHere(self._current().owner_of_connector(name))

    def check_owns_task(self, task: TaskId) -> None:
        """As `Group.check_owns_task`."""
        if not self.has_task(task):
            raise NotHere(self._current().owner_of_task(task))

    @property
    def leader(self) -> str | None:
        """The address of the worker that leads, or None while the group divides."""
        found = self._valid_division
        return None if found is None else found.leader

    @property
    def _valid_division(self) -> Division | None:
        """What the group has decided, as long as this worker is certainly a member."""
        return None if self._election.assignment is None else self._division

    def _current(self) -> Division:
        found = self._valid_division
        if found is None:
            raise NotHere(None)
        return found

    async def wait_changed(self, timeout_s: float) -> None:
        """Returns when the group was divided, or the time is over."""
        await set_within(self._changed, timeout_s)

    def look(self) -> None:
        """Lets the group divide again if this worker leads and there is other work than was divided."""
        leads = self._division is not None and self._division.leader == self._url()
        if leads and self._everything() != self._divided:
            self._election.rejoin("connectors or tasks changed")

    # Dividing

    def _everything(self) -> Work:
        configs = self._configs
        tasks = {
            task
            for name in configs.connectors
            if configs.target_state(name) is not TargetState.STOPPED
            for task in configs.tasks(name)
        }
        return Work(frozenset(configs.connectors), frozenset(tasks))

    def _assign(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        known: list[Member] = []
        for member_id, metadata in members.items():
            try:
                known.append(Member.decode(metadata))
            except DataError as error:
                _log.error("the member %s of the group is no worker: %s", member_id, error)
        self._divided = self._everything()
        found = self._divider.divide(self._url(), known, self._divided, asyncio.get_running_loop().time())
        return dict.fromkeys(members, found.encode())

    def _metadata(self) -> bytes:
        return Member(self._url(), self._own | self.runs()).encode()

    # Being told

    def _on_assigned(self, assignment: Assignment) -> None:
        self.generation = assignment.generation
        try:
            division = Division.decode(assignment.data)
        except DataError as error:
            _log.error("the group's leader sent an unknown division: %s", error)
            return
        if division.error is not None:
            _log.error("the group divides no work: %s", division.error)
        before, self._division = self._own, division
        self._own = division.work.get(self._url(), Work())
        _log.info(
            "the group %s has divided its work: %d connectors and %d tasks are this worker's, %s leads",
            self._election.group_id,
            len(self._own.connectors),
            len(self._own.tasks),
            division.leader,
        )
        self._changed.set()
        if division.leader == self._url():
            self.on_lead()
            self._rejoin_after(division.wait_s)
        self.on_work()
        taken = before - self._own
        if taken:
            self._settling = asyncio.get_running_loop().create_task(self._give_up(taken))

    def _on_revoked(self, lost: bool) -> None:
        self._changed.clear()
        if self._timer is not None:
            self._timer.cancel()
        if lost:
            _log.warning("this worker may have been replaced in its group; it stops everything")
            self._own = Work()
            self.on_work()

    async def _give_up(self, taken: Work) -> None:
        for name in {*taken.connectors, *(task.connector for task in taken.tasks)}:
            await self.settled(name)
        self._election.rejoin("work that was taken away has stopped")

    def _rejoin_after(self, wait_s: float) -> None:
        if wait_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_s, self._election.rejoin, "the wait for a lost worker is over")
        else:
            # Records that arrived while the group divided.
            self.look()
