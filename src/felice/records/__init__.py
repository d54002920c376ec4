"""Records, batches and their bytes: what a partition's log is made of.

`batch` reads the 61-byte header, `reader` and `builder` turn bytes into records and back,
`compression` holds the codecs, `validate` the checks on what producers send, `arrow` the way
to and from columns. Everything here is synchronous and touches no clock, disk or socket.
"""
