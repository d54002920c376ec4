"""The controller: how a broker is elected to the role, and does its duties. (Every broker runs this.)

Keeps true: C3 one controller in an epoch: `/controller` is created and `/controller_epoch` raised in one transaction,
            and every write of the duties checks that epoch.
            Duties are derived from each new image, not from the change that led to it: any broker may have made
            that change, and a duty may be half done.
How:        a task waits for images. `duties` decides, `writing` writes; the result is the next image.
            The role ends with the broker's session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from felice.config import TOPIC_OPTIONS, BrokerConfig
from felice.controller import deletion, topic_ids
from felice.controller.duties import Decision, due, rebalanced
from felice.controller.writing import EpochPassed, wait_shown, write_decisions
from felice.env import Clock
from felice.env.clock import set_within
from felice.metadata import (
    BadVersion,
    ClusterImage,
    Create,
    MetadataStore,
    NodeExists,
    SessionExpired,
    SetData,
    StoreError,
    layout,
)
from felice.metadata.watcher import Watcher
from felice.protocol.errors import BrokenInvariant

_log = logging.getLogger("felice.controller")

NO_CONTROLLER = -1
_PAUSE_AFTER_FAULT_S = 1.0
_FIRST_BALANCE_S = 5.0
_UNCLEAN = "unclean.leader.election.enable"


class Controller:
    """A broker's part in being the controller: it takes the role when it can, and does the duties while it has it."""

    def __init__(
        self,
        store: MetadataStore,
        watcher: Watcher,
        clock: Clock,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        new_topic_id: Callable[[], UUID],
    ) -> None:
        # 0 while another broker is the controller.
        self.epoch = 0
        self._epoch_version = -1
        self._store = store
        self._watcher = watcher
        self._clock = clock
        self._broker_id = broker_id
        self._config = config
        self._new_topic_id = new_topic_id
        self._looked_at: ClusterImage | None = None  # the last image for which no duty was left
        self._faults_seen_to: Mapping[str, str] | None = (
            None  # the topic faults of the last image that were handled
        )
        self._balance_is_due = False
        self._reported: str | None = None  # the error that was logged for the last attempt
        self._shown_epoch = (-1, -1)  # of the last image: its reading, and the controller epoch
        # Broken invariants that were reported in this controller epoch, with their partitions.
        self._broken: set[tuple[str, object]] = set()
        self._wake = asyncio.Event()
        self._was_elected = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_controller(self) -> bool:
        """Whether this broker was elected, and the latest image names it as the controller."""
        return self.epoch > 0 and self._watcher.image.controller_id == self._broker_id

    def start(self) -> None:
        """Begins to compete for the role. Calling it again while it runs has no effect."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._call_for_balance())]
            self._wake.set()

    async def stop(self) -> None:
        """Does no more duties; the role itself ends with the session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def on_image(self) -> None:
        """The image changed: looks for duties, or for a role that became free."""
        self._wake.set()

    def resign(self) -> None:
        """Call after the session has ended: another broker may be the controller."""
        self.epoch, self._epoch_version, self._looked_at = 0, -1, None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
                self._reported = None
            except BrokenInvariant as error:
                self._report_broken(error)
            except EpochPassed:
                _log.info("controllership was lost", extra={"broker": self._broker_id, "epoch": self.epoch})
                self.resign()
            except SessionExpired:
                continue  # woken again when the broker has its next session
            except StoreError as error:
                self._report(str(error))
                await self._pause()
            except Exception:
                _log.exception("the controller failed")
                await self._pause()

    def _report(self, reason: str) -> None:
        """Logs an error once, until a duty succeeds or another error occurs."""
        if reason != self._reported:
            self._reported = reason
            _log.warning("the controller could not act", extra={"reason": reason})

    def _report_broken(self, error: BrokenInvariant) -> None:
        """Logs an ERROR, once for each invariant and partition. The partition keeps its state until the image changes.
        While C3 is broken, the controller does nothing.
        """
        broken = error.name, error.facts.get("partition")
        if broken not in self._broken:
            self._broken.add(broken)
            _log.error(
                "an invariant is broken: the controller takes no action",
                extra={"invariant": error.name, "reason": str(error)},
            )

    async def _pause(self) -> None:
        await asyncio.sleep(_PAUSE_AFTER_FAULT_S)
        self._wake.set()

    async def _look(self) -> None:
        image = self._watcher.image
        self._check_epoch(image)
        if image.controller_id == NO_CONTROLLER:
            await self._stand()
        elif image.controller_id != self._broker_id:
            self.epoch = 0
        elif self.epoch or await self._has_role_already():
            await self._do_duties(image)

    def _check_epoch(self, image: ClusterImage) -> None:
        """C3: the controller epoch in the store never goes back. After a reading of the whole store it may, because an
        operator may have restored an older store.
        """
        reading, epoch = self._shown_epoch
        if image.reading == reading and image.controller_epoch < epoch:
            raise BrokenInvariant(
                "C3", "the controller epoch went back", shown=image.controller_epoch, before=epoch
            )
        self._shown_epoch = image.reading, image.controller_epoch

    # Becoming the controller

    async def _stand(self) -> None:
        node = await self._store.get(layout.CONTROLLER_EPOCH)
        epoch = int(node.data) + 1
        controller = layout.encode_controller(self._broker_id, self._clock.now_ms())
        try:
            await self._store.multi(
                [
                    Create(layout.CONTROLLER, controller, ephemeral=True),
                    SetData(layout.CONTROLLER_EPOCH, b"%d" % epoch, node.version),
                ]
            )
        except (NodeExists, BadVersion):
            return  # another broker was elected; the next image shows it
        self._take(epoch, node.version + 1)

    async def _has_role_already(self) -> bool:
        """Whether this session created `/controller` though the answer was lost. A node of an earlier session ends with
        that session.
        """
        node = await self._store.exists(layout.CONTROLLER)
        if node is None or node.ephemeral_owner != self._store.session_id:
            return False
        epoch = await self._store.get(layout.CONTROLLER_EPOCH)
        self._take(int(epoch.data), epoch.version)
        return True

    def _take(self, epoch: int, version: int) -> None:
        self.epoch, self._epoch_version, self._looked_at = epoch, version, None
        self._faults_seen_to = None
        self._broken.clear()
        self._was_elected.set()
        _log.info("this broker is the controller", extra={"broker": self._broker_id, "epoch": epoch})

    # Duties

    async def _do_duties(self, image: ClusterImage) -> None:
        if image.controller_epoch != self.epoch:
            return  # the image does not yet show this broker's election
        decisions = due(image, self.epoch, self._allows_unclean(image), self._looked_at, self._report_broken)
        if not decisions:
            self._looked_at = image
            decisions = self._balance(image)
        if decisions:
            await write_decisions(self._store, self._epoch_version, decisions)
            # Otherwise the next look would use an image without these changes, and decide the same again.
            await wait_shown(self._watcher, image, decisions)
        for topic, topic_id in image.pending_deletions.items():
            await deletion.finish(self._store, self._epoch_version, topic, topic_id)
        if image.topic_faults is not self._faults_seen_to:
            for topic in image.topic_faults:
                await topic_ids.restore(self._store, self._epoch_version, image, topic, self._new_topic_id)
            self._faults_seen_to = image.topic_faults

    def _allows_unclean(self, image: ClusterImage) -> Callable[[str], bool]:
        default = bool(self._config().topic_defaults().get("unclean_leader_election_enable", False))

        def allows(topic: str) -> bool:
            own = image.topic_configs.get(topic, {}).get(_UNCLEAN)
            return default if own is None else TOPIC_OPTIONS[_UNCLEAN].canonical(own) == "true"

        return allows

    def _balance(self, image: ClusterImage) -> list[Decision]:
        if not self._balance_is_due:
            return []
        self._balance_is_due = False
        percentage = self._config().leader_imbalance_per_broker_percentage
        return rebalanced(image, self.epoch, percentage, self._report_broken)

    async def _call_for_balance(self) -> None:
        """Balances leaders soon after this broker's election, then periodically."""
        pause_s: float = self._config().leader_imbalance_check_interval_seconds
        while True:
            if await set_within(self._was_elected, pause_s):
                self._was_elected.clear()
                pause_s = _FIRST_BALANCE_S
                continue
            config = self._config()
            if config.auto_leader_rebalance_enable and self.is_controller:
                self._balance_is_due = True
                self._wake.set()
            pause_s = config.leader_imbalance_check_interval_seconds
