"""Blocks of producer ids, which this broker gives out to producers.

Keeps true: C1 a block is allocated by compare-and-set, so that no two brokers ever get the same producer id.
"""

from __future__ import annotations

from felice.metadata import BadVersion, MetadataStore, NodeExists, SessionExpired, StoreUnavailable, layout
from felice.metadata.layout import ProducerIdBlock
from felice.protocol.errors import ApiError, ErrorCode

BLOCK_SIZE = 1000
_MAX_ATTEMPTS = 10


class ProducerIdBlocks:
    """Allocates blocks for one broker."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id

    async def allocate(self) -> range:
        """The next block of producer ids; no block is given out twice."""
        try:
            for _ in range(_MAX_ATTEMPTS):
                if (block := await self._try_allocate()) is not None:
                    return range(block.start, block.end + 1)
        except (StoreUnavailable, SessionExpired) as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the metadata store: {error}") from error
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "producer ids could not be allocated")

    async def _try_allocate(self) -> ProducerIdBlock | None:
        node = await self._store.exists(layout.PRODUCER_ID_BLOCK)
        start = layout.decode_producer_id_block(node.data).end + 1 if node else 0
        block = ProducerIdBlock(self._broker_id, start, start + BLOCK_SIZE - 1)
        data = layout.encode_producer_id_block(block)
        try:
            if node is None:
                await self._store.create(layout.PRODUCER_ID_BLOCK, data)
            else:
                await self._store.set(layout.PRODUCER_ID_BLOCK, data, node.version)
        except (NodeExists, BadVersion):
            return None
        return block
