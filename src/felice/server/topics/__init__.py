"""Topics that are created when a client names them, and the rows that describe topics."""
