"""Compiles the reader of one message in one version.

Keeps true:  nothing is read past the end. Every length is compared with the remaining bytes before memory is
             allocated, and an array's length with the minimal size of its elements, so a false count allocates
             nothing. A message has at most `limit` elements: those of its arrays and its tagged fields. Unknown
             tagged fields are skipped in every struct.
How:         one function of straight-line code; nested structs are inlined as loops. Adjacent fixed-width fields,
             and the length or tag count that follows them, are read by one `unpack_from` into the attributes.
             Reading past the end raises `struct.error` or `IndexError`, which `codec` explains.
"""

from __future__ import annotations

import struct

from felice.protocol.primitives import (
    Fault,
    TooManyElements,
    read_uvarint,
    read_uvarint_rest,
    skip_tags,
    uuid_from_bytes,
)
from felice.protocol.schema import EMPTY, FIXED_FORMATS, Field, FieldType, Schema, schema_of
from felice.protocol.source import Compiled, Source

_STRING_MAX_BYTES = 32_767


def compile_decoder(cls: type, version: int) -> Compiled:
    """Return `decode(buffer, position, end, limit) -> (message, position)`; `limit` is in elements."""
    return _Decoder(cls, version).compile()


class _Decoder:
    def __init__(self, cls: type, version: int) -> None:
        self.cls = cls
        self.version = version
        self.schema = schema_of(cls)
        self.flexible = version in self.schema.flexible
        self.run: list[tuple[str, str, str]] = []
        self.after: list[tuple[str, str]] = []
        self.source = Source(
            {
                "Fault": Fault,
                "TooManyElements": TooManyElements,
                "new": object.__new__,
                "read_uvarint": read_uvarint,
                "read_uvarint_rest": read_uvarint_rest,
                "skip_tags": skip_tags,
                "uuid_from_bytes": uuid_from_bytes,
                "unpack_from": struct.unpack_from,
            }
        )

    def compile(self) -> Compiled:
        source = self.source
        with source.block("def decode(buf, pos, end, limit):"):
            source.add("room = limit")
            if has_records(self.schema, self.version):
                source.add("view = memoryview(buf)")
            self.new_struct("message", self.cls, "")
            self.flush()
            source.add("return message, pos")
        return source.compile("decode", f"decode {self.schema.name} v{self.version}")

    # Runs of fixed-width values

    def fixed(self, code: str, target: str, path: str) -> None:
        self.run.append((code, target, path))

    def flush(self) -> None:
        """Emit the pending run as one unpack."""
        if self.run:
            codes = "".join(code for code, _, _ in self.run)
            targets = ", ".join(target for _, target, _ in self.run)
            widths = [(path, struct.calcsize(">" + code)) for code, _, path in self.run]
            unpack = self.source.packer(codes, "unpack_from")
            self.source.add(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buf, pos)", *widths)
            self.source.add(f"pos += {struct.calcsize('>' + codes)}")
            self.run.clear()
        for line, path in self.after:
            self.source.add(line, (path, 0))
        self.after.clear()

    def length(self, non_flexible: str, path: str) -> str:
        """Emit the reading of a length, in either encoding. A negative length means null."""
        name = self.source.fresh("n")
        self.fixed("B" if self.flexible else non_flexible, name, path)
        self.flush()
        if self.flexible:
            with self.source.block(f"if {name} > 127:"):
                self.source.add(f"{name}, pos = read_uvarint_rest(buf, pos, {name})", (path, 0))
            self.source.add(f"{name} -= 1")
        return name

    def null(self, name: str, target: str, nullable: bool, path: str) -> None:
        """Emit the handling of a negative length `name`."""
        if nullable:
            with self.source.block(f"elif {name} == -1:"):
                self.source.add(f"{target} = None")
        with self.source.block("else:"):
            reason = "negative length" if nullable else "null or negative length"
            self.source.add(f"raise Fault(f'{reason} {{{name}}}')", (path, 0))

    # Structs

    def new_struct(self, target: str, cls: type, path: str) -> None:
        """Emit the reading of a struct into a new local; the last run may stay pending."""
        self.source.add(f"{target} = new({self.source.constant('C', cls)})")
        tagged = []
        for field in schema_of(cls).fields:
            place = f"{path}.{field.name}" if path else field.name
            present = self.version in field.versions
            if present and field.tag is None:
                self.value(f"{target}.{field.name}", field.type, self.version in field.nullable, place)
                continue
            self.default(f"{target}.{field.name}", field)
            if present:
                tagged.append((field, place))
        if self.flexible:
            self.tags(target, tagged, path)

    def default(self, target: str, field: Field) -> None:
        if field.default is EMPTY and field.type.kind == "array":
            value = "[]"
        elif field.default is EMPTY:
            value = f"{self.source.constant('C', field.type.struct)}()"
        elif isinstance(field.default, bool | int | str | bytes | None):
            value = repr(field.default)
        else:
            value = self.source.constant("D", field.default)
        self.source.add(f"{target} = {value}")

    def tags(self, target: str, tagged: list[tuple[Field, str]], path: str) -> None:
        place = f"{path}.tags" if path else "tags"
        count = self.source.fresh("k")
        self.fixed("B", count, place)
        self.flush()
        with self.source.block(f"if {count}:"):
            with self.source.block(f"if {count} > 127:"):
                self.source.add(f"{count}, pos = read_uvarint_rest(buf, pos, {count})", (place, 0))
            self.take(count, place)
            if not tagged:
                self.source.add(f"pos = skip_tags(buf, pos, end, {count})", (place, 0))
                return
            with self.source.block(f"for _ in range({count}):"):
                self.tag(target, tagged, place)

    def take(self, count: str, path: str) -> None:
        """Emit the check that `count` further elements are within the limit."""
        self.source.add(f"room -= {count}")
        with self.source.block("if room < 0:"):
            self.source.add("raise TooManyElements(limit, limit - room)", (path, 0))

    def tag(self, target: str, tagged: list[tuple[Field, str]], place: str) -> None:
        """Emit the reading of one tagged field."""
        add, tag, stop = self.source.add, self.source.fresh("t"), self.source.fresh("stop")
        add(f"{tag}, pos = read_uvarint(buf, pos)", (place, 0))
        add(f"{stop}, pos = read_uvarint(buf, pos)", (place, 0))
        with self.source.block(f"if {stop} > end - pos:"):
            add(f"raise Fault(f'tagged field of {{{stop}}} bytes, {{end - pos}} left')", (place, 0))
        add(f"{stop} += pos")
        word = "if"
        for field, path in tagged:
            with self.source.block(f"{word} {tag} == {field.tag}:"):
                self.value(
                    f"{target}.{field.name}", field.type, self.version in field.nullable, path, is_tagged=True
                )
                self.flush()
                with self.source.block(f"if pos != {stop}:"):
                    add(f"raise Fault(f'tagged field ends at byte {{{stop}}}')", (path, 0))
            word = "elif"
        with self.source.block("else:"):
            add(f"pos = {stop}")

    # Values

    def value(self, target: str, kind: FieldType, nullable: bool, path: str, is_tagged: bool = False) -> None:
        if kind.kind in FIXED_FORMATS:
            self.fixed(FIXED_FORMATS[kind.kind], target, path)
        elif kind.kind == "uuid":
            raw = self.source.fresh("u")
            self.fixed("16s", raw, path)
            self.after.append((f"{target} = uuid_from_bytes({raw})", path))
        elif kind.kind == "array":
            assert kind.element is not None
            self.array(target, kind.element, nullable, path)
        elif kind.kind == "struct":
            assert kind.struct is not None
            self.nested(target, kind.struct, nullable, path, is_tagged)
        else:
            self.sized(target, kind.kind, nullable, path)

    def sized(self, target: str, kind: str, nullable: bool, path: str) -> None:
        """Emit the reading of a string, bytes or records."""
        made = {
            "string": "str(buf[pos:{stop}], 'utf-8')",
            "bytes": "bytes(buf[pos:{stop}])",
            "records": "view[pos:{stop}]",
        }[kind]
        name = self.length("h" if kind == "string" else "i", path)
        stop = self.source.fresh("stop")
        with self.source.block(f"if {name} >= 0:"):
            if kind == "string" and self.flexible:
                with self.source.block(f"if {name} > {_STRING_MAX_BYTES}:"):
                    self.source.add(f"raise Fault(f'string of {{{name}}} bytes is too long')", (path, 0))
            self.source.add(f"{stop} = pos + {name}")
            with self.source.block(f"if {stop} > end:"):
                self.source.add(f"raise Fault(f'{{{name}}} bytes announced, {{end - pos}} left')", (path, 0))
            self.source.add(f"{target} = {made.format(stop=stop)}", (path, 0))
            self.source.add(f"pos = {stop}")
        self.null(name, target, nullable, path)

    def nested(self, target: str, cls: type, nullable: bool, path: str, is_tagged: bool) -> None:
        name = self.source.fresh("o")
        if not nullable:
            self.new_struct(name, cls, path)
            self.after.append((f"{target} = {name}", path))
            return
        # A nullable struct begins with a byte: 1, or for null -1 (in a tagged field 0).
        flag = self.source.fresh("n")
        self.fixed("b", flag, path)
        self.flush()
        with self.source.block(f"if {flag} {'>' if is_tagged else '>='} 0:"):
            self.new_struct(name, cls, path)
            self.flush()
            self.source.add(f"{target} = {name}")
        with self.source.block("else:"):
            self.source.add(f"{target} = None")

    def array(self, target: str, element: FieldType, nullable: bool, path: str) -> None:
        name = self.length("i", path)
        least = least_size(element, self.version, self.flexible)
        with self.source.block(f"if {name} >= 0:"):
            with self.source.block(f"if {name} * {least} > end - pos:"):
                self.source.add(
                    f"raise Fault(f'{{{name}}} elements announced, {{end - pos}} bytes left')", (path, 0)
                )
            self.elements(target, element, name, least, path)
        self.null(name, target, nullable, path)

    def elements(self, target: str, element: FieldType, count: str, width: int, path: str) -> None:
        code = FIXED_FORMATS.get(element.kind)
        self.take(count, path)
        if code is not None:
            self.source.add(f"{target} = list(unpack_from(f'>{{{count}}}{code}', buf, pos))", (path, 0))
            self.source.add(f"pos += {count} * {width}" if width > 1 else f"pos += {count}")
            return
        items, item = self.source.fresh("a"), self.source.fresh("e")
        self.source.add(f"{items} = {target} = []")
        with self.source.block(f"for _ in range({count}):"):
            if element.kind == "struct":
                assert element.struct is not None
                self.new_struct(item, element.struct, f"{path}[]")
            else:
                self.value(item, element, False, f"{path}[]")
            self.flush()
            self.source.add(f"{items}.append({item})")


def has_records(schema: Schema, version: int) -> bool:
    """Whether a message has a field of records in this version."""
    return any(_reaches_records(field.type, version) for field in schema.fields if version in field.versions)


def _reaches_records(kind: FieldType, version: int) -> bool:
    if kind.element is not None:
        return _reaches_records(kind.element, version)
    if kind.struct is not None:
        return has_records(schema_of(kind.struct), version)
    return kind.kind == "records"


def least_size(kind: FieldType, version: int, flexible: bool) -> int:
    """Return the minimal size of an array's element in bytes. It is never zero, so that every count is bounded."""
    if kind.kind in FIXED_FORMATS:
        return struct.calcsize(">" + FIXED_FORMATS[kind.kind])
    if kind.kind == "uuid":
        return 16
    if kind.kind == "struct":
        assert kind.struct is not None
        fields = [f for f in schema_of(kind.struct).fields if version in f.versions and f.tag is None]
        sizes = (1 if version in f.nullable else least_size(f.type, version, flexible) for f in fields)
        return max(1, sum(sizes) + flexible)
    if flexible:
        return 1
    return 2 if kind.kind == "string" else 4
