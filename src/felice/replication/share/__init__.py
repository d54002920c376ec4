"""Share groups (KIP-932) at the leader of a partition: which member holds which records, and how a delivery ends.

Pure. `states` names the states of records, `runs` keeps the offsets of a window in sorted runs, `settings` are a
group's limits, `acquiring` plans which records a fetch acquires, `acknowledgements` checks a member's acknowledgements,
and `window` puts them together: the state machine of one share partition.
"""
