"""Coordinators: state machines whose state is one partition of an internal topic.

`shard` is the contract of a pure state machine, `runtime` the shell that loads it, writes its records and
answers requests. `group` has consumer groups, `transaction` has transactional ids.
"""
