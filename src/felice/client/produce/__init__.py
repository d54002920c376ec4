"""The parts of a producer below its public APIs: the accumulator holds batches, the sender sends them, and the
transactor runs transactions.

`core` combines them for the blocking API (`confluent`) and the asyncio API (`aio`).
"""
