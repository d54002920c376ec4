"""The memory that the bodies of all requests take together."""

from __future__ import annotations

import asyncio
import json

from felice.web.limits import Limits
from unit.web.serving_app import Serving, parse, request_of, run
from waiting import until

LIMITS = Limits(body_bytes=1000, bodies_bytes=2000, body_s=600, linger_s=0.1)


def test_the_unfinished_bodies_that_began_first_give_way_when_all_are_too_large() -> None:
    async def scenario(serving: Serving) -> None:
        opened = []
        for number in range(3):
            reader, writer = await serving.connect()
            writer.write(request_of("POST", "/count", headers={"Content-Length": "1000"}) + b"x" * 600)
            opened.append((reader, writer))
            await until(lambda expected=number + 1: serving.tasks == expected)
        fourth = await serving.ask(request_of("POST", "/count", b"x" * 1000))
        assert json.loads(fourth[2]) == {"bytes": 1000}
        for reader, _ in opened[:2]:
            status, headers, body = parse(await reader.read())
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(body)["message"] == (
                "the requests that are being read have more than 2,000 bytes together"
            )
        reader, writer = opened[2]
        writer.write(b"x" * 400)
        assert json.loads(parse(await reader.read())[2]) == {"bytes": 1000}
        for _, writer in opened:
            writer.close()

    run(scenario, limits=LIMITS)


def test_a_body_that_finds_the_memory_taken_by_whole_bodies_is_refused() -> None:
    async def scenario(serving: Serving) -> None:
        held = [await serving.connect() for _ in range(2)]
        for number, (_, writer) in enumerate(held, 1):
            writer.write(request_of("POST", "/hold", b"x" * 1000))
            await until(lambda expected=number: serving.waiting == expected)
        assert (await serving.ask(request_of("POST", "/count", b"x")))[0] == 503
        assert (await serving.ask(request_of("GET", "/hello")))[0] == 200
        serving.go_on.set()
        for reader, writer in held:
            assert parse(await reader.read())[0] == 200
            writer.close()
        assert (await serving.ask(request_of("POST", "/count", b"x")))[0] == 200

    run(scenario, limits=LIMITS)


def test_many_bodies_one_after_the_other_leave_nothing() -> None:
    async def scenario(serving: Serving) -> None:
        for _ in range(20):
            answers = [serving.ask(request_of("POST", "/count", b"x" * 400)) for _ in range(4)]
            assert [status for status, _, _ in await asyncio.gather(*answers)] == [200] * 4

    run(scenario, limits=LIMITS)


def test_a_body_gives_way_also_while_its_handler_does_something_else() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("POST", "/parts", headers={"Content-Length": "1000"}) + b"x" * 900)
        await until(lambda: serving.waiting)
        reader2, writer2 = await serving.connect()
        writer2.write(request_of("POST", "/count", headers={"Content-Length": "1000"}) + b"x" * 900)
        await until(lambda: serving.tasks == 2)
        assert (await serving.ask(request_of("POST", "/count", b"x" * 1000)))[0] == 200
        serving.go_on.set()
        writer.write(b"x" * 100)
        assert parse(await reader.read())[0] == 503
        writer2.write(b"x" * 100)
        assert parse(await reader2.read())[0] == 200
        writer.close()
        writer2.close()

    run(scenario, limits=LIMITS)
