"""A consumer's membership in its group: the protocol's decisions, the requests, and the tasks that send them."""
