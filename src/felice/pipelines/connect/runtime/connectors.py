"""A connector of this worker: an object of its author's class, which divides the work among tasks.

Keeps true:  the calls of a connector come one after another, on a thread of its own: one that hangs holds up no other.
             The state that was told last is the connector's; a failure of any call makes it FAILED with a trace.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping

from felice.pipelines.connect.connector.base import Connector, SourceConnector
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskState
from felice.pipelines.connect.runtime.own_thread import OwnThread
from felice.pipelines.connect.storage.configs import TargetState
from felice.pipelines.connect.task.source_offsets import OffsetStore

Tell = Callable[[TaskState, str | None], None]
"""Called on the event loop with a state, and the trace of a failure."""

_log = logging.getLogger("felice.connect.runtime")

END_S = 5.0
"""The longest wait for the end of a connector."""
_STATES = {
    TargetState.STARTED: TaskState.RUNNING,
    TargetState.PAUSED: TaskState.PAUSED,
    TargetState.STOPPED: TaskState.STOPPED,
}


class RunningConnector:
    """One connector. `offsets` opens the offsets of a source, when the connector asks for one."""

    def __init__(
        self,
        name: str,
        kind: type[Connector],
        config: Mapping[str, str],
        tell: Tell,
        on_reconfiguration: Callable[[], None],
        offsets: Callable[[], OffsetStore],
    ) -> None:
        """`config` has its references replaced. `on_reconfiguration`: the connector wants other tasks."""
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._kind = kind
        self._config = config
        self._tell = tell
        self._on_reconfiguration = on_reconfiguration
        self._offsets = offsets
        self._thread = OwnThread(f"felice-connector-{name}")
        self._connector: Connector | None = None
        self.has_failed = False

    async def follow(self, state: TargetState) -> bool:
        """Brings the connector to a state. Returns False if it failed, which was told."""
        if self.has_failed:
            return False
        try:
            await self._thread.run(self._start if state is TargetState.STARTED else self._stop)
        except Exception as error:
            self._fail(error)
            return False
        if not self.has_failed:  # the connector may have said so while it started
            self._tell(_STATES[state], None)
        return not self.has_failed

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]] | None:
        """The configurations of the tasks, or None if the connector failed, which was told."""
        try:
            return await self._thread.run(lambda: self._divided(max_tasks))
        except Exception as error:
            self._fail(error)
            return None

    async def end(self) -> None:
        """Stops the connector for good. One that does not follow in time is left: its thread ends with the process."""
        try:
            async with asyncio.timeout(END_S):
                await self._thread.run(self._stop)
        except TimeoutError:
            _log.warning("connector %s did not stop in %g s; it is left", self._name, END_S)
        except Exception as error:
            # It has no state any more in which this could be told.
            _log.warning("connector %s did not stop well: %s: %s", self._name, type(error).__name__, error)
        finally:
            self._thread.end()

    # On the connector's thread

    def _start(self) -> None:
        if self._connector is not None:
            return
        connector = self._kind()
        connector.context = _Context(self)  # type: ignore[attr-defined]
        self._connector = connector
        connector.start(dict(self._config))

    def _stop(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            connector.stop()

    def _divided(self, max_tasks: int) -> list[dict[str, str]]:
        assert self._connector is not None, "a connector that does not run divides no work"
        found = [dict(one) for one in self._connector.task_configs(max_tasks)]
        if len(found) > max_tasks:
            raise ConnectError(
                f"The connector generated {len(found)} tasks, which is greater than {max_tasks}, the maximum number "
                "of tasks it is configured to create (tasks.max)"
            )
        return found

    # From any thread

    def _fail(self, error: BaseException) -> None:
        self.has_failed = True
        self._tell(TaskState.FAILED, "".join(traceback.format_exception(error)))

    def _fail_from_thread(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._fail, error)


class _Context:
    """What the connector may ask (`ConnectorContext`, `SourceConnectorContext`)."""

    def __init__(self, running: RunningConnector) -> None:
        self._running = running

    def request_task_reconfiguration(self) -> None:
        self._running._loop.call_soon_threadsafe(self._running._on_reconfiguration)

    def fail(self, error: BaseException) -> None:
        self._running._fail_from_thread(error)

    def offset(self, partition: Place) -> Place | None:
        if not issubclass(self._running._kind, SourceConnector):
            raise ConnectError("a sink connector has no offsets of a source")
        return self._running._offsets().read([partition])[0]
