"""Protobuf: .proto texts and descriptors, their canonical text, and the rules of their compatibility.

`schema` is the interface. `compiler` runs protoc in a child process (`worker`, `compiling`, `known_files`), which also
writes the text of a descriptor (`printing`, `options`, `literals`, `written_names`). `rules` compares two schemas.
"""

from felice.registry.formats.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]
