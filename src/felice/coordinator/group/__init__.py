"""Groups of consumers, and their committed offsets.

Pure: `classic/` (the classic protocol), `modern/` (groups whose partitions the broker assigns; so far their assignors),
`offsets/` (what all kinds of group share), `records`, `shard` (all groups of one partition). Shell: `coordinator`.
"""
