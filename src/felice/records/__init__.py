"""Records, record batches and their bytes: the content of a partition's log.

`batch` reads the 61-byte header. `reader` decodes the bytes of a batch into records, `builder` encodes records.
`compression` has the codecs, `validate` the checks of what producers send, `arrow` the conversion from and to
Arrow columns. Everything here is synchronous and touches no clock, disk or socket.
"""
