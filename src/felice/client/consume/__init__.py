"""The parts of a consumer below its public APIs: subscription, positions, fetching, delivery and offsets.

`core` combines them with the consumer group. The blocking API (`confluent`) and the asyncio API (`aio`) use `core`.
"""
