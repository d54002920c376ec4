"""Keeps a `ClusterImage` current with the store.

Keeps true: every change in the store reaches the image, for one path in the store's order; the listener gets each new
            image once, together with the old one. A listener's exception is logged, and later images are delivered.
            No topic is shown with the state of another topic of its name (C8).
            An image that lacks a topic has the record of its deletion, if one was requested (C12).
            Every image is of one cluster. If the store has another cluster, or none, the image stays as it was.
How:        one recursive watch, one refresh at a time. An event marks its path; the refresh reads the current nodes
            of the marked paths and builds one image of all of them. A topic's node is read after the states below it,
            unless they are known to be its own and its node did not change. Where events were missed, the image is
            rebuilt from the whole store. The end of a session leaves the image unchanged; its renewal counts as
            missed events. A read that fails for another reason is repeated. Nodes outside the image's paths may belong
            to other programs, and are not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence

from felice.env.begun import time_limit
from felice.metadata import image_paths, layout
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
# So many topics are looked up together when the whole store is read.
_TOPICS_AT_ONCE = 100

ImageListener = Callable[[ClusterImage, ClusterImage], None]
# Work that must be done, and takes time, before an image is shown.
ImagePreparation = Callable[[ClusterImage], Awaitable[None]]


class Watcher:
    """Follows one store. `on_image` gets the old and the new image; `prepare` may do slow work before that."""

    def __init__(
        self,
        store: MetadataStore,
        on_image: ImageListener,
        prepare: ImagePreparation | None = None,
        *,
        cluster_id: str | None = None,
        on_other_cluster: Callable[[str], None] | None = None,
    ) -> None:
        """`cluster_id`: the cluster to follow; None for that of the store."""
        self.image = ClusterImage()
        self._cluster_id = cluster_id
        self._on_other_cluster = on_other_cluster
        self._prepare = prepare
        self._store = store
        self._on_image = on_image
        # In the order of the events; the values mean nothing.
        self._marked: dict[str, None] = {}
        self._is_to_reload = False
        self._refreshing: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []
        # Faults of topics' nodes that were logged, by topic name.
        self._reported: dict[str, str] = {}

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
            async with time_limit(timeout_s):
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
            self._marked[event.path] = None
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
            marked, self._marked = self._marked, {}
            is_complete, self._is_to_reload = self._is_to_reload, False
            builder = ImageBuilder(self.image, is_complete=is_complete)
            await (self._read_all(builder) if is_complete else self._read_marked(builder, marked))
            if self._is_to_reload:
                # The connection was lost meanwhile: the nodes may be of two states of the store, one of them restored.
                continue
            image = builder.build()
            if not self._is_of_cluster(image):
                # The next change of the store may restore the cluster.
                self._is_to_reload = True
                return
            image = self.image if is_complete and image == self.image else image
            if self._prepare is not None and image is not self.image:
                await self._make_ready(self._prepare, image)
            self._publish(image)

    def _is_of_cluster(self, image: ClusterImage) -> bool:
        """Whether this is an image of the cluster that is followed. The content of a store may be replaced."""
        if self._cluster_id in (None, image.cluster_id):
            return True
        if image.cluster_id is not None and self._on_other_cluster is not None:
            self._on_other_cluster(image.cluster_id)
        _log.error(
            "the metadata store has lost this broker's cluster: its image is not updated",
            extra={"cluster": self._cluster_id, "found": image.cluster_id},
        )
        return False

    async def _make_ready(self, prepare: ImagePreparation, image: ClusterImage) -> None:
        try:
            await prepare(image)
        except Exception:
            _log.exception("a change of the cluster was not prepared")

    async def _read_all(self, builder: ImageBuilder) -> None:
        [names] = await self._store.children_many([layout.TOPICS])
        topics = [layout.topic_path(name) for name in names or ()]
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            await self._read_topics(builder, await self._paths_below(topics[start : start + _TOPICS_AT_ONCE]))
            await asyncio.sleep(0)
        others = [root for root in layout.IMAGE_ROOTS if root != layout.TOPICS]
        await _put_all(builder, await self._read(await self._paths_below(others)))

    async def _read_marked(self, builder: ImageBuilder, marked: Mapping[str, None]) -> None:
        """Reads the marked paths, and everything below marked topics that are not in the image yet."""
        faulty = self.image.topic_faults.keys() - self.image.topics.keys()
        lost = sorted(faulty & {path.split("/")[3] for path in marked if image_paths.topic_of(path)})
        below = await self._paths_below(map(layout.topic_path, lost)) if lost else []
        paths = dict.fromkeys([*marked, *below])
        await self._read_topics(builder, [path for path in paths if image_paths.topic_of(path)])
        # A topic may have been deleted since this refresh began. Its node was then read as missing, so the events of
        # that transaction have arrived: the record of the deletion must be in the same image.
        records = [path for path in self._marked if is_within(path, layout.DELETED_TOPICS)]
        others = [path for path in paths if not image_paths.topic_of(path)]
        await _put_all(builder, await self._read(dict.fromkeys([*others, *records])))

    async def _read_topics(self, builder: ImageBuilder, paths: Iterable[str]) -> None:
        """Reads these nodes of topics. Also reads each topic's own node, unless it certainly did not change."""
        for number, group in enumerate(_by_topics(paths)):
            if number:
                await asyncio.sleep(0)
            read: set[str] = set()
            while group:
                read.update(await self._read_group(builder, group))
                group = _gained(builder, group, read)

    async def _read_group(self, builder: ImageBuilder, group: Mapping[str, Sequence[str]]) -> Iterable[str]:
        """Reads nodes by topic, as `_by_topics` groups them; returns the paths that were read."""
        nodes = await self._read([path for topic, below in group.items() for path in below if path != topic])
        # A topic's node is read after its states. If the topic was deleted and created again in between, the node
        # is the new topic's, and `ImageBuilder` drops the states, because they are older than the node.
        nodes |= await self._read([topic for topic in group if self._is_to_read(topic, group[topic], nodes)])
        await _put_all(builder, nodes)
        builder.end_topics()
        return nodes

    def _is_to_read(self, topic: str, below: Sequence[str], nodes: Mapping[str, Node | None]) -> bool:
        """Whether a topic's node must be read, because it may differ from the image.

        It is large in a topic with many partitions, so it is not read each time that a state changes. A state node that
        the image knows belongs to the image's topic, because a topic's node is deleted after its state nodes. If the
        topic's node changed before the states were read, its event has arrived and has marked its path; if the event
        was lost, everything will be read again.
        """
        is_announced = topic in self._marked or self._is_to_reload
        return is_announced or any(not self._is_own(path, nodes.get(path)) for path in below)

    def _is_own(self, path: str, node: Node | None) -> bool:
        """Whether this is a state node that the image knows: it was not deleted and created again."""
        key = image_paths.partition_of(path)
        known = self.image.partition(*key) if key is not None else None
        return node is not None and known is not None and known.state_created_zxid == node.created_zxid

    async def _read(self, paths: Iterable[str]) -> dict[str, Node | None]:
        wanted = [path for path in paths if image_paths.has_data(path)]
        return dict(zip(wanted, await self._store.get_many(wanted), strict=True)) if wanted else {}

    async def _paths_below(self, roots: Iterable[str]) -> list[str]:
        """The roots and every node below them, level by level. Nodes known from the layout may not exist."""
        found: list[str] = []
        level = list(roots)
        while level:
            found += level
            families = {path: image_paths.fixed_children(path) for path in level}
            unknown = [path for path, names in families.items() if names is None]
            answers = await self._store.children_many(unknown) if unknown else []
            families |= {path: tuple(names or ()) for path, names in zip(unknown, answers, strict=True)}
            level = [f"{path}/{name}" for path, names in families.items() for name in names or ()]
        return found

    def _publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        self._report_faults()
        if image is not old:
            self._tell(old, image)
        for condition, future in self._waiting:
            if not future.done() and condition(image):
                future.set_result(None)

    def _tell(self, old: ClusterImage, image: ClusterImage) -> None:
        try:
            self._on_image(old, image)
        except Exception:
            _log.exception("a change of the cluster was not followed")

    def _report_faults(self) -> None:
        """Logs each fault once, unless other nodes of its topic have changed since they were read: a topic whose
        deletion begins between two reads has no partitions, and no fault.
        """
        faults = self.image.topic_faults
        self._reported = {
            topic: reason for topic, reason in self._reported.items() if faults.get(topic) == reason
        }
        if not faults or self._is_to_reload:
            return
        changed = set(map(image_paths.topic_of, self._marked))
        for topic, reason in faults.items():
            if topic not in self._reported and layout.topic_path(topic) not in changed:
                self._reported[topic] = reason
                _log.error(
                    "the node of a topic in the metadata store is not as it should be",
                    extra={"topic": topic, "reason": reason},
                )


def _gained(builder: ImageBuilder, topics: Iterable[str], read: Container[str]) -> dict[str, list[str]]:
    """The unread states of partitions that the topics' nodes have gained, by the paths of the topics.

    No event tells of them if they are older than the change of the topic's node: an operator may have restored a node
    that had lost partitions.
    """
    states = {
        topic: [layout.state_path(name, partition) for partition in builder.gained(name)]
        for topic in topics
        for name in (topic.rpartition("/")[2],)
    }
    unread = {topic: [path for path in paths if path not in read] for topic, paths in states.items()}
    return {topic: paths for topic, paths in unread.items() if paths}


def _by_topics(paths: Iterable[str]) -> Iterator[dict[str, list[str]]]:
    """Groups of whole topics with about `NODES_A_TURN` paths: for each topic those below it, or itself."""
    topics: dict[str, list[str]] = {}
    for path in paths:
        topic = image_paths.topic_of(path)
        assert topic is not None
        topics.setdefault(topic, []).append(path)
    group: dict[str, list[str]] = {}
    size = 0
    for topic, below in topics.items():
        group[topic] = below
        size += len(below)
        if size >= NODES_A_TURN:
            yield group
            group, size = {}, 0
    if group:
        yield group


async def _put_all(builder: ImageBuilder, nodes: Mapping[str, Node | None]) -> None:
    """Puts the nodes in slices: other requests are handled in between."""
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
        _log.error(
            "a node of the metadata store cannot be interpreted", extra={"path": path, "reason": repr(error)}
        )
