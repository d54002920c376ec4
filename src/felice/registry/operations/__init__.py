"""What requests of the REST API read and write, as functions of the state.

Each function takes the state and the request's arguments. It returns the answer, or the records to write and the
answer, or raises `RegistryError`. None of them waits, and none changes the state: the records do, when they are read.
"""
