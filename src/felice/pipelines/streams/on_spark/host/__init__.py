"""Many Apps in one streaming query: each has its own positions and state, and its results exactly once.

`host.Host` is the way in. `plans` says what runs, as files; `positions` where each App reads on; `reader` plans
batches; `level` runs tasks in workers.
"""
