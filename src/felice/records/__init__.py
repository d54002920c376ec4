"""Records, record batches and their bytes: the content of a partition's log.

`batch` reads the 61-byte header. `reader` decodes the bytes of a batch into records, `builder` encodes records, both
with `kernels` (compiled, or plain Python). `compression` has the codecs, `validate` the checks of what producers send,
`control` the transaction markers, `aborted` the filter of read_committed readers, `arrow` the conversion from and to
Arrow columns. Everything here is synchronous and touches no clock, disk or socket.
"""
