"""Groups of consumers, and their committed offsets.

Pure: `classic/` (the classic protocol), `consumer/` (the consumer protocol, KIP-848), `modern/` (code for all protocols
with server-side assignment), `offsets/` (committed offsets of all kinds of groups), `records`, `shard` (all groups of
one partition). Shell: `coordinator`.
"""
