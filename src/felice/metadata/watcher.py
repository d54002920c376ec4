"""Keeps a `ClusterImage` current with the store.

Keeps true: every change in the store reaches the image, in the store's order as far as
            one path is concerned; a listener hears of each new image once, old and new.
            A listener's fault is logged, and costs nobody the images that follow.
How:        one recursive watch, one refresh at a time. An event marks its path; the refresh reads the marked
            paths as they are now, parents first, and builds one image of all of them.
            Where events were missed, the image is built anew from the whole store. A session
            that ends leaves the image as it was; its renewal is told of as missed events. A read that
            fails otherwise is tried again. Nodes of which no image speaks may be others', and are not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from felice.metadata import layout
from felice.metadata.image import ClusterImage, ImageBuilder
from felice.metadata.store import (
    Event,
    EventKind,
    MetadataStore,
    Node,
    SessionExpired,
    StoreError,
    is_within,
)

_log = logging.getLogger(__name__)

_RETRY_S = 1.0

ImageListener = Callable[[ClusterImage, ClusterImage], None]
# What has to be done before an image is shown, and takes time.
ImagePreparation = Callable[[ClusterImage], Awaitable[None]]


class Watcher:
    def __init__(
        self, store: MetadataStore, on_image: ImageListener, prepare: ImagePreparation | None = None
    ) -> None:
        self.image = ClusterImage()
        self._prepare = prepare
        self._store = store
        self._on_image = on_image
        self._marked: set[str] = set()
        self._is_to_reload = False
        self._refreshing: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []

    async def start(self) -> None:
        """Reads the whole store; the image is complete when this returns."""
        self._stop_watching = self._store.watch("/", self._on_event)
        self._is_to_reload = True
        # What changes meanwhile is for this very refresh to see: a second beside it could be undone by it.
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await self._refreshing

    async def stop(self) -> None:
        if self._stop_watching:
            self._stop_watching()
        if self._refreshing:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        for _, future in self._waiting:
            future.cancel()

    async def wait_until(self, condition: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        """Whether the image came to fulfil the condition in time."""
        if condition(self.image):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (condition, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)
        return True

    async def catch_up(self, timeout_s: float) -> bool:
        """Whether the image came to show in time all that was heard of."""
        if self._refreshing is not None and not self._refreshing.done():
            await asyncio.wait({self._refreshing}, timeout=timeout_s)
        return self._refreshing is None or self._refreshing.done()

    def _on_event(self, event: Event) -> None:
        if event.kind is EventKind.MISSED:
            self._is_to_reload = True
        elif any(is_within(event.path, root) for root in layout.IMAGE_ROOTS):
            self._marked.add(event.path)
        else:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                await self._refresh()
                return
            except SessionExpired:
                # The renewed session is told `MISSED`, and everything is read again.
                _log.warning(
                    "the image of the cluster stands still: the session with the metadata store has ended"
                )
                return
            except StoreError as error:
                # What was to be read is forgotten with the attempt.
                self._is_to_reload = True
                _log.warning("the image of the cluster stands still", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)

    async def _refresh(self) -> None:
        while self._marked or self._is_to_reload:
            marked, self._marked = self._marked, set()
            is_anew, self._is_to_reload = self._is_to_reload, False
            if is_anew:
                marked = await self._paths_below(layout.IMAGE_ROOTS)
            else:
                marked |= await self._with_them(marked)
            builder = ImageBuilder(self.image, is_anew=is_anew)
            # Topics' nodes come last: one that is there still when the states below it were read is the one whose they
            # are. (Those of one that was made meanwhile `ImageBuilder` tells by their age.)
            paths = sorted(marked, key=lambda path: layout.topic_above(path) is None)
            nodes = dict(zip(paths, await self._store.get_many(paths), strict=True))
            # Parents sort before their children, so a topic is known before its partitions' states.
            for path in sorted(nodes, key=lambda path: (layout.marked_topic(path) is None, path)):
                _put(builder, path, nodes[path])
            image = builder.build()
            image = self.image if is_anew and image == self.image else image
            if self._prepare is not None and image is not self.image:
                await self._make_ready(self._prepare, image)
            self._publish(image)

    async def _make_ready(self, prepare: ImagePreparation, image: ClusterImage) -> None:
        try:
            await prepare(image)
        except Exception:
            _log.exception("a change of the cluster was not prepared")

    async def _with_them(self, marked: set[str]) -> set[str]:
        """What else is to be read: a topic with what lies below it, and all of one that nothing was made of so far."""
        topics = {topic for path in marked if (topic := layout.topic_above(path)) is not None}
        lost = (layout.topic_path(name) for name in self.image.topic_faults.keys() - self.image.topics.keys())
        return topics | await self._paths_below([path for path in lost if path in topics or path in marked])

    async def _paths_below(self, roots: Iterable[str]) -> set[str]:
        """The roots and every node below, level by level."""
        found = level = list(roots)
        while level:
            families = zip(level, await self._store.children_many(level), strict=True)
            level = [f"{path}/{name}" for path, names in families for name in names or ()]
            found = found + level
        return set(found)

    def _publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        if image is not old:
            _report_faults(old, image)
            self._tell(old, image)
        for condition, future in self._waiting:
            if not future.done() and condition(image):
                future.set_result(None)

    def _tell(self, old: ClusterImage, image: ClusterImage) -> None:
        try:
            self._on_image(old, image)
        except Exception:
            _log.exception("a change of the cluster was not followed")


def _report_faults(old: ClusterImage, image: ClusterImage) -> None:
    for topic, reason in image.topic_faults.items():
        if old.topic_faults.get(topic) != reason:
            _log.error(
                "the node of a topic in the metadata store is not as it should be",
                extra={"topic": topic, "reason": reason},
            )


def _put(builder: ImageBuilder, path: str, node: Node | None) -> None:
    """Others may write to the store too: what nobody can read is passed over by name, not fallen over."""
    try:
        builder.put(path, node)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error("a node of the metadata store means nothing", extra={"path": path, "reason": repr(error)})
