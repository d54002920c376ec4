"""The controller: decides topics, placement and configuration, and writes them to the store.

`topic_plans` (with `placement` and `topic_names`), `config_changes`, `features`, `election`, `reassignment` and
`duties` decide (pure). `controller` is the elected broker's part: it does the `duties`. `cluster_admin`, `leaderships`,
`acl_changes` and `token_changes` make the changes that clients ask for, on any broker. `writing` writes decisions by
compare-and-set.
"""
