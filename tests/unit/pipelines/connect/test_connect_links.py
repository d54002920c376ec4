"""The links between a worker and its running tasks: wishes, states, offsets, strangers, and either side's end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from connect_tasks import MemoryOffsets
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.runtime.messages import HEAD, PAUSE, RESUME, STOP, Ticket
from felice.pipelines.connect.runtime.task_link import TaskLink
from felice.pipelines.connect.runtime.worker_links import WorkerLink, WorkerLinks
from felice.pipelines.connect.task.control import Control

TASK = TaskId("c", 0)
TIMEOUT_S = 60


def with_links(use: Callable[[WorkerLinks], Awaitable[None]]) -> None:
    async def run() -> None:
        links = WorkerLinks()
        await links.start("127.0.0.1")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await use(links)
        finally:
            await links.close()

    asyncio.run(run())


async def linked(ticket: Ticket, control: Control | None = None) -> TaskLink:
    return await asyncio.to_thread(TaskLink, ticket, control or Control(), TIMEOUT_S)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def opened(links: WorkerLinks, states: list[TaskState] | None = None) -> WorkerLink:
    return links.open(TASK, ([] if states is None else states).append)


def test_a_task_follows_wishes_from_before_and_after_it_reports() -> None:
    async def use(links: WorkerLinks) -> None:
        link, control = opened(links), Control()
        link.wish(PAUSE)
        task = await linked(link.ticket, control)
        await until(lambda: control.is_paused)
        link.wish(RESUME)
        await until(lambda: not control.is_paused)
        link.wish(STOP)
        await until(lambda: control.is_stopping)
        await asyncio.to_thread(task.end, None)
        await link.ended.wait()
        assert (link.said_goodbye, link.trace) == (True, None)
        link.wish(STOP)  # too late, and no error

    with_links(use)


def test_a_task_tells_its_states_and_its_error() -> None:
    async def use(links: WorkerLinks) -> None:
        states: list[TaskState] = []
        link = opened(links, states)
        task = await linked(link.ticket)
        for state in (TaskState.RUNNING, TaskState.PAUSED, TaskState.RUNNING):
            await asyncio.to_thread(task.tell_state, state)
        await asyncio.to_thread(task.end, "Traceback: ü")
        await link.ended.wait()
        assert states == [TaskState.RUNNING, TaskState.PAUSED, TaskState.RUNNING]
        assert link.trace == "Traceback: ü"

    with_links(use)


def test_the_worker_keeps_the_offsets_of_a_task() -> None:
    async def use(links: WorkerLinks) -> None:
        offsets = MemoryOffsets()
        link = links.open(TASK, print, offsets)
        task = await linked(link.ticket)
        await asyncio.to_thread(task.write, [({"file": "ä"}, {"at": 1}), ({"file": "b"}, {"at": 2})])
        await asyncio.to_thread(task.write, [({"file": "b"}, None)])
        found = await asyncio.to_thread(task.read, [{"file": "b"}, {"file": "ä"}])
        assert found == [None, {"at": 1}] == offsets.read([{"file": "b"}, {"file": "ä"}])
        await asyncio.to_thread(task.end, None)

    with_links(use)


def test_an_error_of_the_offsets_is_the_tasks() -> None:
    async def use(links: WorkerLinks) -> None:
        link = opened(links)
        task = await linked(link.ticket)
        with pytest.raises(ConnectError, match="keeps no offsets"):
            await asyncio.to_thread(task.read, [{}])
        await asyncio.to_thread(task.end, None)

    with_links(use)


def test_a_task_ends_with_its_worker() -> None:
    control = Control()
    tasks: list[TaskLink] = []

    async def use(links: WorkerLinks) -> None:
        tasks.append(await linked(opened(links).ticket, control))

    with_links(use)
    control.wait_s(TIMEOUT_S)
    assert control.is_stopping
    with pytest.raises(ConnectError, match="link"):
        tasks[0].read([{}])
    tasks[0].end("nobody listens")


def test_a_task_that_is_killed_has_ended_without_a_goodbye() -> None:
    async def use(links: WorkerLinks) -> None:
        link = opened(links)
        task = await linked(link.ticket)
        task._socket.shutdown(socket.SHUT_RDWR)
        await link.ended.wait()
        assert not link.said_goodbye
        await asyncio.to_thread(task.end, None)

    with_links(use)


def test_strangers_get_no_link_and_hold_up_nobody() -> None:
    async def use(links: WorkerLinks) -> None:
        link = opened(links)
        address = link.ticket.host, link.ticket.port
        silent = [await asyncio.open_connection(*address) for _ in range(20)]
        greedy, writer = await asyncio.open_connection(*address)
        writer.write(HEAD.pack(1 << 31))
        # The challenge, and then the end.
        assert (await greedy.read()).count(b"challenge") == 1
        writer.close()
        for ticket in (replace(link.ticket, key=bytes(32)), replace(link.ticket, number=99)):
            control = Control()
            task = await linked(ticket, control)
            await until(lambda control=control: control.is_stopping)  # type: ignore[misc]
            await asyncio.to_thread(task.end, None)
        assert not link.is_connected
        task = await linked(link.ticket)
        await until(lambda: link.is_connected)
        # A ticket is used once.
        again = await linked(link.ticket, late := Control())
        await until(lambda: late.is_stopping)
        for one in (task, again):
            await asyncio.to_thread(one.end, None)
        await link.ended.wait()
        for _, other in silent:
            other.close()

    with_links(use)


def test_a_link_whose_task_never_came_is_closed() -> None:
    async def use(links: WorkerLinks) -> None:
        link = opened(links)
        links.forget(link)
        assert link.ended.is_set()
        task = await linked(link.ticket, control := Control())
        await until(lambda: control.is_stopping)
        await asyncio.to_thread(task.end, None)

    with_links(use)


def test_a_worker_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectError, match=f"cannot reach the worker at 127.0.0.1:{port}"):
        TaskLink(Ticket("127.0.0.1", port, 1, b""), Control())


def test_the_key_of_a_ticket_stands_in_no_text() -> None:
    assert "secret" not in repr(Ticket("h", 1, 2, b"secret"))
