"""The membership of a broker in its cluster: its identity, its metadata store, and its registration."""
