"""Commits of thousands of offsets in parts, with pauses between them.

Each part is checked on its own: if the group rebalances meanwhile, or the transaction ends, the rows of the later parts
have the error of that. The connection's next requests wait, so that its later commits are not overwritten by earlier
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from felice.env.begun import begin, ended
from felice.server.flow.pace import MAX_ITEMS_WITHOUT_PAUSE, held, paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# Committing so many offsets takes some milliseconds.
PART_PARTITIONS = 200


class OfTopics(Protocol):
    """A request or a response. Each of its topics has `partitions`."""

    topics: list[Any]


RequestT = TypeVar("RequestT", bound=OfTopics)
ResponseT = TypeVar("ResponseT", bound=OfTopics)


async def commit_in_parts(
    request: RequestT,
    commit: Callable[[RequestT], Coroutine[Any, Any, ResponseT]],
    join: Callable[[list[tuple[Any, list[Any]]]], ResponseT],
    context: RequestContext,
) -> ResponseT:
    """Calls `commit` once, or for each part of a large request.

    `join` builds the whole response from the request's topics, each with the rows of its partitions.
    """
    if sum(len(topic.partitions) for topic in request.topics) <= MAX_ITEMS_WITHOUT_PAUSE:
        return await commit(request)
    with held(context.session):
        begun = [begin(commit(part)) async for part in paced(parts_of(request), context.services.env.clock)]
    responses = [await ended(one) for one in begun]
    rows = (row for response in responses for topic in response.topics for row in topic.partitions)
    return join([(topic, list(islice(rows, len(topic.partitions)))) for topic in request.topics])


def parts_of(request: RequestT) -> Iterator[RequestT]:
    """Requests of at most `PART_PARTITIONS` partitions each, in the order of the whole request."""
    topics: list[Any] = []
    room = PART_PARTITIONS
    for topic in request.topics:
        left = iter(topic.partitions)
        while partitions := list(islice(left, room)):
            part = copy(topic)
            part.partitions = partitions
            topics.append(part)
            room -= len(partitions)
            if not room:
                yield _with_topics(request, topics)
                topics, room = [], PART_PARTITIONS
    if topics:
        yield _with_topics(request, topics)


def _with_topics(request: RequestT, topics: list[Any]) -> RequestT:
    part = copy(request)
    part.topics = topics
    return part
