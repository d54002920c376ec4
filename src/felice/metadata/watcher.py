"""Keeps a `ClusterImage` current with the store.

Keeps true: every change in the store reaches the image, in the store's order as far as
            one path is concerned; a listener hears of each new image once, old and new.
            A listener's fault is logged, and costs nobody the images that follow.
How:        one recursive watch. An event marks its path; the refresh reads the marked
            paths as they are now, parents first, and builds one image of all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from felice.metadata.image import ClusterImage, ImageBuilder
from felice.metadata.store import Event, MetadataStore, NoNode

_log = logging.getLogger(__name__)

ImageListener = Callable[[ClusterImage, ClusterImage], None]


class Watcher:
    def __init__(self, store: MetadataStore, on_image: ImageListener) -> None:
        self.image = ClusterImage()
        self._store = store
        self._on_image = on_image
        self._marked: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []

    async def start(self) -> None:
        """Reads the whole store; the image is complete when this returns."""
        self._stop_watching = self._store.watch("/", self._on_event)
        await self._mark_below("/")
        await self._refresh()

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
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)
        return True

    def _on_event(self, event: Event) -> None:
        self._marked.add(event.path)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _mark_below(self, path: str) -> None:
        self._marked.add(path)
        try:
            names = await self._store.children(path)
        except NoNode:
            return
        for name in names:
            await self._mark_below(f"{path.rstrip('/')}/{name}")

    async def _refresh(self) -> None:
        while self._marked:
            # Parents sort before their children, so a topic is known before its partitions' states.
            paths, self._marked = sorted(self._marked), set()
            builder = ImageBuilder(self.image)
            for path in paths:
                builder.put(path, await self._store.exists(path))
            self._publish(builder.build())

    def _publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
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
