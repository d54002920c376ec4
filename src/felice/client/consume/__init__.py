"""Consuming, without an API of its own: subscription, positions, fetching, delivery, offsets.

`core` puts them together with the group for the blocking consumer (`confluent`) and the asyncio consumer (`aio`).
"""
