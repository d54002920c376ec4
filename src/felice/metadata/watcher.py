"""Keeps a `ClusterImage` current with the store.

Keeps true: every change in the store reaches the image, for one path in the store's order; the listener gets each new
            image once, together with the old one. A listener's exception is logged, and later images are delivered.
How:        one recursive watch, one refresh at a time. An event marks its path; the refresh reads the current nodes
            of the marked paths, parents first, and builds one image of all of them. Where events were missed, the image
            is rebuilt from the whole store. The end of a session leaves the image unchanged; its renewal counts as
            missed events. A read that fails for another reason is repeated. Nodes outside the image's paths may belong
            to other programs, and are not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

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

_log = logging.getLogger("felice.metadata")

_RETRY_S = 1.0
# So many nodes are put into an image in one turn of the event loop.
NODES_A_TURN = 1000

ImageListener = Callable[[ClusterImage, ClusterImage], None]
# Work that must be done, and takes time, before an image is shown.
ImagePreparation = Callable[[ClusterImage], Awaitable[None]]


class Watcher:
    """Follows one store. `on_image` gets the old and the new image; `prepare` may do slow work before that."""

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
        # Changes that arrive meanwhile are left to this refresh: a second one beside it could overwrite newer nodes.
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await self._refreshing

    async def stop(self) -> None:
        """Stops following. Requests that wait for a condition of the image are cancelled."""
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
        """Whether the image came to include all reported events in time."""
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
                # The renewed session gets `MISSED`, and everything is read again.
                _log.warning(
                    "the image of the cluster is not updated: the session with the metadata store has ended"
                )
                return
            except StoreError as error:
                # The attempt has consumed the marked paths, so the next one reads everything.
                self._is_to_reload = True
                _log.warning("the image of the cluster is not updated", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)

    async def _refresh(self) -> None:
        while self._marked or self._is_to_reload:
            marked, self._marked = self._marked, set()
            is_complete, self._is_to_reload = self._is_to_reload, False
            if is_complete:
                marked = await self._paths_below(layout.IMAGE_ROOTS)
            else:
                marked |= await self._with_them(marked)
            builder = ImageBuilder(self.image, is_complete=is_complete)
            # Read the topics' nodes last: if a node still exists, the states read before belong to its topic.
            # (`ImageBuilder` recognises states of a topic recreated meanwhile by their age.)
            paths = sorted(marked, key=lambda path: layout.topic_above(path) is None)
            nodes = dict(zip(paths, await self._store.get_many(paths), strict=True))
            await _put_all(builder, nodes)
            image = builder.build()
            image = self.image if is_complete and image == self.image else image
            if self._prepare is not None and image is not self.image:
                await self._make_ready(self._prepare, image)
            self._publish(image)

    async def _make_ready(self, prepare: ImagePreparation, image: ClusterImage) -> None:
        try:
            await prepare(image)
        except Exception:
            _log.exception("a change of the cluster was not prepared")

    async def _with_them(self, marked: set[str]) -> set[str]:
        """The marked paths, and further ones to read: a topic's node with anything below it, and everything below a
        topic that is not in the image yet.
        """
        topics = {topic for path in marked if (topic := layout.topic_above(path)) is not None}
        lost = (layout.topic_path(name) for name in self.image.topic_faults.keys() - self.image.topics.keys())
        return topics | await self._paths_below([path for path in lost if path in topics or path in marked])

    async def _paths_below(self, roots: Iterable[str]) -> set[str]:
        """The roots and every node below them, level by level."""
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


async def _put_all(builder: ImageBuilder, nodes: Mapping[str, Node | None]) -> None:
    """Puts the nodes in slices: a cluster of 200,000 partitions has 400,000 nodes, which takes seconds."""
    # Parents sort before their children, so a topic is known before its partitions' states.
    paths = sorted(nodes, key=lambda path: (layout.topic_of_id_node(path) is None, path))
    for count, path in enumerate(paths, 1):
        _put(builder, path, nodes[path])
        if count % NODES_A_TURN == 0:
            await asyncio.sleep(0)


def _put(builder: ImageBuilder, path: str, node: Node | None) -> None:
    """A node that cannot be parsed is logged and skipped: other programs may write to the store too."""
    try:
        builder.put(path, node)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error("a node of the metadata store means nothing", extra={"path": path, "reason": repr(error)})
