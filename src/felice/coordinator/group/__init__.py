"""Groups of consumers, and their committed offsets.

Pure: `classic/` (the classic protocol), `offsets/` (what all kinds of group share), `records`, `shard` (all groups of
one partition). Shell: `coordinator`.
"""
