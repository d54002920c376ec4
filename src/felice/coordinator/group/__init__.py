"""Consumer groups: the classic rebalance protocol and committed offsets.

Pure: `states`, `member`, `classic_group` (the data), `join`, `sync`, `membership`, `rebalance` (the protocol),
`offsets`, `commits`, `offset_topics`, `listing`, `records`, `shard` (all of one partition). Shell: `coordinator`.
"""
