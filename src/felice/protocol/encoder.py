"""Compiles the writer of one message in one version.

Keeps true:  a value that this version cannot encode is an error, unless it is the default or the field is ignorable.
             Records and large bytes are never copied: they become separate parts, between the parts with the
             fields around them.
How:         one function of straight-line code. Adjacent fixed-width fields, and the string length that follows
             them, are written by one `pack`. Wrong values raise `struct.error`, `TypeError` or `AttributeError`,
             which `codec` explains.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from felice.protocol.primitives import ZERO_UUID, Encoded, Fault, size_of, uvarint
from felice.protocol.schema import EMPTY, FIXED_FORMATS, Field, FieldType, schema_of
from felice.protocol.source import Compiled, Source

COPIED_BYTES = 1024
"""Bytes up to this size are copied into the surrounding part, which costs less than sending another buffer."""


def compile_encoder(cls: type, version: int) -> Compiled:
    """Return `encode(message, out, parts)`. It fills bytearray `out`, and appends it and further parts to `parts`."""
    return _Encoder(cls, cls, version).compile()


def compile_element_encoder(cls: type, message: type, version: int) -> Compiled:
    """As `compile_encoder`, for a struct that is an element of an array in `message`."""
    return _Encoder(cls, message, version).compile()


class _Encoder:
    def __init__(self, cls: type, message: type, version: int) -> None:
        self.cls = cls
        self.message = message
        self.version = version
        self.schema = schema_of(cls)
        self.flexible = version in schema_of(message).flexible
        self.out = "out"
        self.run: list[tuple[str, str, str]] = []
        self.source = Source(
            {
                "Encoded": Encoded,
                "Fault": Fault,
                "ZERO_UUID": ZERO_UUID,
                "pack": struct.pack,
                "size_of": size_of,
                "uvarint": uvarint,
            }
        )

    def compile(self) -> Compiled:
        source = self.source
        with source.block("def encode(message, out, parts):"):
            self.struct("message", self.cls, "")
            self.flush()
            with source.block("if out:"):
                source.add("parts.append(out)")
        return source.compile("encode", f"encode {self.schema.name} v{self.version}")

    # Runs of fixed-width values

    def fixed(self, code: str, value: str, path: str) -> None:
        self.run.append((code, value, path))

    def packed(self, run: list[tuple[str, str, str]]) -> None:
        if run:
            pack = self.source.packer("".join(code for code, _, _ in run), "pack")
            values = ", ".join(value for _, value, _ in run)
            self.source.add(f"{self.out} += {pack}({values})", *((path, 0) for _, _, path in run))

    def flush(self) -> None:
        self.packed(self.run)
        self.run.clear()

    def length(self, size: str, non_flexible: str, path: str) -> None:
        """Emit the writing of a length (-1 for null) and the run before it. `size` must be a name."""
        if not self.flexible:
            self.fixed(non_flexible, size, path)
            self.flush()
            return
        with self.source.block(f"if {size} < 127:"):
            self.packed([*self.run, ("B", f"{size} + 1", path)])
        with self.source.block("else:"):
            self.packed(self.run)
            self.source.add(f"{self.out} += uvarint({size} + 1)")
        self.run.clear()

    def not_null(self, name: str, nullable: bool, path: str) -> None:
        if not nullable:
            with self.source.block(f"if {name} is None:"):
                self.source.add("raise Fault('must not be null')", (path, 0))

    # Structs

    def struct(self, value: str, cls: type, path: str) -> None:
        """Emit the writing of a struct; the last run may stay pending."""
        tagged = []
        for field in schema_of(cls).fields:
            place = f"{path}.{field.name}" if path else field.name
            if self.version not in field.versions:
                self.absent(f"{value}.{field.name}", field, place)
            elif field.tag is not None:
                tagged.append((field, place))
            else:
                self.value(f"{value}.{field.name}", field.type, self.version in field.nullable, place)
        if self.flexible:
            self.tags(value, tagged, path)

    def absent(self, value: str, field: Field, path: str) -> None:
        """Emit the check that a field which this version lacks has its default, unless it is ignorable."""
        if field.ignorable:
            return
        with self.source.block(f"if {self.differs(value, field)}:"):
            self.source.add(
                f"raise Fault('not in version {self.version}, so it must be left alone')", (path, 0)
            )

    def differs(self, value: str, field: Field) -> str:
        """Return an expression that is true if `value` is not the default of `field`."""
        if field.default is EMPTY:
            if field.type.kind == "array":
                return f"{value} is None or {value}" if field.nullable.max >= 0 else value
            return f"{value} != {self.source.constant('C', field.type.struct)}()"
        if field.default is None and field.type.kind == "struct" and field.tag is not None:
            blank = self.source.constant("C", field.type.struct)
            return f"{value} is not None and {value} != {blank}()"
        if field.default is None:
            return f"{value} is not None"
        if field.type.kind == "uuid":
            return f"{value} != ZERO_UUID"
        if field.default in (0, "", b"") and field.nullable.max < 0:
            return value
        return f"{value} != {field.default!r}"

    def tags(self, value: str, tagged: list[tuple[Field, str]], path: str) -> None:
        if not tagged:
            self.fixed("B", "0", path)
            return
        self.flush()
        present = []
        for field, _ in tagged:
            name = self.source.fresh("t")
            self.source.add(f"{name} = bool({self.tag_differs(f'{value}.{field.name}', field)})")
            present.append(name)
        with self.source.block(f"if {' or '.join(present)}:"):
            self.source.add(f"{self.out}.append({' + '.join(present)})")
            for name, (field, place) in sorted(
                zip(present, tagged, strict=True), key=lambda item: item[1][0].tag or 0
            ):
                with self.source.block(f"if {name}:"):
                    self.tag(f"{value}.{field.name}", field, place)
        with self.source.block("else:"):
            self.source.add(f"{self.out}.append(0)")

    def tag_differs(self, value: str, field: Field) -> str:
        if field.type.kind == "struct":
            assert field.type.struct is not None
            inner = schema_of(field.type.struct).fields
            different = " or ".join(f"({self.differs(f'{value}.{f.name}', f)})" for f in inner)
            if field.default is EMPTY:
                return f"{value} is None or {different}"
            return f"{value} is not None and ({different})"
        return self.differs(value, field)

    def tag(self, value: str, field: Field, path: str) -> None:
        with self.separate_buffer() as buffer:
            self.value(value, field.type, self.version in field.nullable, path, is_tagged=True)
            self.flush()
        self.source.add(f"{self.out} += {uvarint(field.tag or 0)!r}")
        self.source.add(f"{self.out} += uvarint(len({buffer}))")
        self.source.add(f"{self.out} += {buffer}")

    @contextmanager
    def separate_buffer(self) -> Iterator[str]:
        """Collect code that writes into a separate buffer, because its size must precede it."""
        outer, self.out = self.out, self.source.fresh("out")
        self.source.add(f"{self.out} = bytearray()")
        yield self.out
        self.out = outer

    # Values

    def value(self, value: str, kind: FieldType, nullable: bool, path: str, is_tagged: bool = False) -> None:
        if kind.kind in FIXED_FORMATS:
            self.fixed(FIXED_FORMATS[kind.kind], value, path)
        elif kind.kind == "uuid":
            self.fixed("16s", f"{value}.bytes", path)
        elif kind.kind == "array":
            assert kind.element is not None
            self.array(value, kind.element, nullable, path)
        elif kind.kind == "struct":
            assert kind.struct is not None
            self.nested(value, kind.struct, nullable, path, is_tagged)
        elif kind.kind == "string":
            self.string(value, nullable, path)
        else:
            self.bytes(value, nullable, path)

    def string(self, value: str, nullable: bool, path: str) -> None:
        text, raw, size = self.source.fresh("s"), self.source.fresh("b"), self.source.fresh("n")
        self.source.add(f"{text} = {value}", (path, 0))
        self.not_null(text, nullable, path)
        if nullable:
            self.source.add(f"{raw} = b'' if {text} is None else {text}.encode()", (path, 0))
            self.source.add(f"{size} = -1 if {text} is None else len({raw})", (path, 0))
        else:
            self.source.add(f"{raw} = {text}.encode()", (path, 0))
            self.source.add(f"{size} = len({raw})")
        with self.source.block(f"if {size} > 32767:"):
            self.source.add(f"raise Fault(f'string of {{{size}}} bytes is too long')", (path, 0))
        self.length(size, "h", path)
        self.source.add(f"{self.out} += {raw}")

    def bytes(self, value: str, nullable: bool, path: str) -> None:
        """Emit the writing of bytes or records. Large ones, and records in files, become separate parts."""
        name, size = self.source.fresh("v"), self.source.fresh("n")
        self.source.add(f"{name} = {value}", (path, 0))
        self.not_null(name, nullable, path)
        self.source.add(f"{size} = -1 if {name} is None else size_of({name})", (path, 0))
        self.length(size, "i", path)
        with self.source.block(f"if {size} > 0:", (path, 0)):
            if self.out != "out":
                self.source.add(f"{self.out} += {name}", (path, 0))
                return
            with self.source.block(f"if {size} <= {COPIED_BYTES} and not hasattr({name}, 'size_bytes'):"):
                self.source.add(f"out += {name}", (path, 0))
            with self.source.block("else:"):
                self.source.add(f"parts.append(out); parts.append({name}); out = bytearray()")

    def nested(self, value: str, cls: type, nullable: bool, path: str, is_tagged: bool) -> None:
        name = self.source.fresh("o")
        self.source.add(f"{name} = {value}", (path, 0))
        if not nullable:
            self.not_null(name, False, path)
            self.struct(name, cls, path)
            return
        self.flush()
        with self.source.block(f"if {name} is None:"):
            # As in `decoder.nested`.
            null = b"\0" if is_tagged else b"\xff"
            self.source.add(f"{self.out} += {null!r}")
        with self.source.block("else:"):
            self.source.add(f"{self.out} += b'\\x01'")
            self.struct(name, cls, path)
            self.flush()

    def array(self, value: str, element: FieldType, nullable: bool, path: str) -> None:
        items, size = self.source.fresh("a"), self.source.fresh("n")
        self.source.add(f"{items} = {value}", (path, 0))
        self.not_null(items, nullable, path)
        self.source.add(f"{size} = -1 if {items} is None else len({items})", (path, 0))
        self.length(size, "i", path)
        with self.source.block(f"if {size} > 0:"):
            self.elements(items, size, element, path)

    def elements(self, items: str, size: str, element: FieldType, path: str) -> None:
        code = FIXED_FORMATS.get(element.kind)
        if code is not None:
            self.source.add(f"{self.out} += pack(f'>{{{size}}}{code}', *{items})", (path, 0))
            return
        item = self.source.fresh("e")
        with self.source.block(f"for {item} in {items}:", (path, 0)):
            if element.kind == "struct":
                assert element.struct is not None
                if element.may_be_encoded:
                    self.encoded(item, element.struct, path)
                self.struct(item, element.struct, f"{path}[]")
            else:
                self.value(item, element, False, f"{path}[]")
            self.flush()
            self.source.add("pass")

    def encoded(self, item: str, cls: type, path: str) -> None:
        """Take over the bytes of an element that was encoded before."""
        struct, message = self.source.constant("C", cls), self.source.constant("C", self.message)
        with self.source.block(f"if type({item}) is Encoded:"):
            same = (
                f"{item}.version == {self.version} and {item}.cls is {struct} and {item}.message is {message}"
            )
            with self.source.block(f"if not ({same}):"):
                self.source.add("raise Fault('encoded for another message or version')", (f"{path}[]", 0))
            self.source.add(f"{self.out} += {item}.data")
            self.source.add("continue")
