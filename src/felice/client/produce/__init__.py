"""Producing, without an API of its own: batches wait in the accumulator, the sender sends, the transactor commits.

`core` puts them together for the blocking producer (`confluent`) and the asyncio producer (`aio`).
"""
