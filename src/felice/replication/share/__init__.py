"""Share groups (KIP-932) at the leader of a partition: which records are delivered to whom, and how that ends.

Pure. `states` names the states of records, `runs` keeps the offsets of a window in sorted runs, `settings` are a
group's limits, `acquiring` plans what a fetch acquires, `acknowledgements` checks what a member says of its records,
and `window` puts them together: the state machine of one share partition.
"""
