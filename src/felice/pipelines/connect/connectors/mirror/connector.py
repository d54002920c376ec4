"""What the connectors of a mirror share that look for something in the source cluster, and look again at times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from felice.pipelines.connect.connector.base import SourceConnector
from felice.pipelines.connect.connectors.mirror.options import LACKING

if TYPE_CHECKING:
    from felice.pipelines.connect.connectors.mirror.clusters import Clusters
    from felice.pipelines.connect.connectors.mirror.watching import Watch

Job = tuple[float, Callable[[], object]]
"""What is done again at times: every so many seconds, beginning at once."""


class LookingConnector(SourceConnector):
    """A connector that does nothing until `_begin`, and divides what `_look` finds."""

    version: ClassVar = "1"
    lacking: ClassVar = LACKING

    _watch: Watch | None = None
    _clusters: Clusters

    def stop(self) -> None:
        """Ends the look."""
        if self._watch is not None:
            self._watch.stop()
            self._clusters.close()

    def _open(self, config: Mapping[str, str], values: Mapping[str, Any]) -> Clusters:
        """Both clusters. Raises for wrong options, before any cluster is asked."""
        from felice.pipelines.connect.connectors.mirror.clusters import SOURCE, TARGET, Clusters

        self._clusters = Clusters(config, values)
        for cluster in (SOURCE, TARGET):
            self._clusters.settings(cluster, "admin")
        return self._clusters

    def _begin(self, interval_s: float | None, jobs: Iterable[Job] = ()) -> None:
        """Looks, and again after each interval, if there is one. A look that fails is tried until one succeeds."""
        from felice.pipelines.connect.connectors.mirror.watching import Watch, is_done

        is_ready = is_done(self._look)
        watch = self._watch = Watch(f"felice-{type(self).__name__}")
        if interval_s is not None:
            watch.every(interval_s, self._refresh, now=False)
        for every_s, job in jobs:
            watch.every(every_s, job, now=True)
        if not is_ready:
            watch.once(self._refresh)
        watch.start()

    def _look(self) -> bool:
        """Whether there is something else to divide than before. Extend it. Raises `ConnectError`."""
        raise NotImplementedError

    def _refresh(self) -> None:
        if self._look():
            self.context.request_task_reconfiguration()


def interval_of(values: Mapping[str, Any], what: str) -> float | None:
    """The seconds of an option `WHAT.interval.seconds`, or None without `WHAT.enabled`."""
    return values[f"{what}.interval.seconds"] if values[f"{what}.enabled"] else None
