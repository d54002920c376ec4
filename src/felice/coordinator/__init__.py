"""Coordinators: state machines whose state is one partition of an internal topic.

`shard` is the contract of a pure state machine. `hosted_shard` is the shell of one shard: it loads the log, writes
records and answers requests. `runtime` has the shards of one topic that are on this broker.
`group` has consumer groups, `transaction` has transactional ids, `share_state` has the states of share groups.
"""
