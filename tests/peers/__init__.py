"""Foreign Kafka clients, tools and brokers, fetched once and run from tests.

Keeps true: each peer is the unmodified upstream artefact, pinned in `versions` (our own client stands among
them, to be compared). `prepare.py` fetches and builds; tests call `require_*`, which skip by name where an
ecosystem is missing, or fail where all of them were asked for (`CI` or `FELICE_REQUIRE_PEERS=1`).
"""
