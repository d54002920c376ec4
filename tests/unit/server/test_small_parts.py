"""Producer ids and structured logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging

from felice.server.process.logs import configure_logs
from felice.server.writes.producer_ids import ProducerIds


def test_producer_ids_are_unique_across_blocks_and_callers() -> None:
    starts = iter(range(0, 1000, 5))

    async def allocate() -> range:
        await asyncio.sleep(0)
        start = next(starts)
        return range(start, start + 5)

    async def scenario() -> list[int]:
        ids = ProducerIds(allocate)
        return await asyncio.gather(*(ids.next_id() for _ in range(23)))

    assert sorted(asyncio.run(scenario())) == list(range(23))


def _logged(as_json: bool) -> str:
    stream = io.StringIO()
    logger = logging.getLogger("felice")
    before = logger.handlers, logger.level, logger.propagate
    try:
        configure_logs(as_json=as_json, stream=stream)
        logging.getLogger("felice.server").info(
            "connection closed", extra={"peer": "127.0.0.1", "reason": 'said "no"\nand left'}
        )
    finally:
        logger.handlers, logger.level, logger.propagate = before
    return stream.getvalue()


def test_a_log_line_is_one_line_of_facts() -> None:
    line = _logged(as_json=False)
    assert line.count("\n") == 1
    assert line.endswith(
        'INFO felice.server: connection closed peer=127.0.0.1 reason="said \\"no\\"\\nand left"\n'
    )
    assert line[:2] == "20"


def test_a_log_line_may_be_json() -> None:
    value = json.loads(_logged(as_json=True))
    assert (value["message"], value["peer"], value["level"]) == ("connection closed", "127.0.0.1", "INFO")
    assert value["name"] == "felice.server"
