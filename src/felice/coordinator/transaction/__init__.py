"""Transactions: which producer may write under a transactional id, and how each transaction ends.

Pure: `states`, `metadata`, `records`, `initialisation`, `ending`, `listing`, `shard` (all of one partition). Shell:
`coordinator` (requests in, answers out) and `markers` (decisions out to the partitions' leaders).
"""
