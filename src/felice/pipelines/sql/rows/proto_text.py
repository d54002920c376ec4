"""The text of a .proto file as a file descriptor; pure, with protobuf. It reads what describes data.

Keeps true:  fields have the names, numbers, types and presence that protoc gives them. Names of types stay as they are
             written; the pool of descriptors resolves them.
Leaves out:  options, but for precision and scale of Confluent's decimals; services, extensions, groups, reserved names.
             It checks only what it needs: a registry compiles texts before it takes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message_factory import GetMessageClass

from felice.client.schema_registry.protobuf_files import new_pool

_META_FIELD = 1088
"""The number of `(confluent.field_meta)` in FieldOptions."""

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | (?P<text>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<word>[\w.]+) | (?P<sign>[^\s\w"'])""",
    re.VERBOSE | re.DOTALL,
)
_WHOLE = (
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
)
_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (*_WHOLE, "bool", "bytes", "double", "float", "string")
}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_PAIR = re.compile(r"\{([^{}]*)\}")
_MOST_LEVELS = 30


def file_of_text(text: str, name: str) -> FileDescriptorProto:
    """The file of a .proto text. Raises ValueError for a text that is none."""
    return _Reader(text).file(name)


class _Reader:
    """Reads one text, token after token."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise ValueError(f"the .proto text cannot be read from {text[place : place + 20]!r} on")
            if found.lastgroup is not None:
                self._tokens.append(found.group())
            place = found.end()
        self._place, self._is_proto3, self._level = 0, False, 0

    @property
    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next
        if not token:
            raise ValueError("the .proto text ends too early")
        self._place += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            raise ValueError(f"expected {token!r} in the .proto text, and got {found!r}")

    def _took(self, token: str) -> bool:
        if self._next != token:
            return False
        self._place += 1
        return True

    def _text(self) -> str:
        return self._take()[1:-1]

    def _number(self) -> int:
        sign = -1 if self._took("-") else 1
        found = self._take()
        try:
            return sign * int(found, 0)
        except ValueError:
            raise ValueError(f"expected a number in the .proto text, and got {found!r}") from None

    def _skip_to_end(self) -> None:
        """Skip a statement: up to its semicolon, or its block."""
        while (token := self._take()) != ";":
            if token in _CLOSING:
                self._skip_block(_CLOSING[token])
                if token == "{" and self._next not in (";", ",", "]"):
                    return

    def _skip_block(self, end: str) -> list[str]:
        """Skip to the end of a block that is open, and return its tokens."""
        begin, ends = self._place, [end]
        while ends:
            token = self._take()
            if token == ends[-1]:
                ends.pop()
            elif token in _CLOSING:
                ends.append(_CLOSING[token])
        return self._tokens[begin : self._place - 1]

    def file(self, name: str) -> FileDescriptorProto:
        file = FileDescriptorProto(name=name)
        while self._next:
            match self._take():
                case "syntax":
                    self._expect("=")
                    file.syntax = self._text()
                    self._is_proto3 = file.syntax == "proto3"
                    self._expect(";")
                case "package":
                    file.package = self._take()
                    self._expect(";")
                case "import":
                    self._import(file)
                case "message":
                    self._message(file.message_type.add())
                case "enum":
                    self._enum(file.enum_type.add())
                case ";":
                    pass
                case "option" | "extend" | "service":
                    self._skip_to_end()
                case other:
                    raise ValueError(f"the .proto text has {other!r} where a definition is expected")
        return file

    def _import(self, file: FileDescriptorProto) -> None:
        is_public = self._took("public")
        if not is_public:
            self._took("weak")
        if is_public:
            file.public_dependency.append(len(file.dependency))
        name = self._text()
        # Some write google/type/TimeOfDay.proto, which Confluent's registry knows.
        file.dependency.append(name.lower() if name.startswith("google/type/") else name)
        self._expect(";")

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._take()
        self._expect("{")
        while not self._took("}"):
            name = self._take()
            if name == "option":
                while self._next != ";":
                    enum.options.allow_alias |= self._next == "allow_alias"
                    self._place += 1
            elif name == "reserved":
                self._skip_to_end()
            elif name != ";":
                self._expect("=")
                enum.value.add(name=name, number=self._number())
                self._options()

    def _message(self, message: DescriptorProto) -> None:
        self._level += 1
        if self._level > _MOST_LEVELS:
            raise ValueError(f"messages are nested more than {_MOST_LEVELS} levels deep")
        message.name = self._take()
        self._expect("{")
        while not self._took("}"):
            self._member(message)
        _place_optional_fields(message)
        self._level -= 1

    def _member(self, message: DescriptorProto) -> None:
        token = self._next
        special: dict[str, Callable[[], Any]] = {
            "message": lambda: self._message(message.nested_type.add()),
            "enum": lambda: self._enum(message.enum_type.add()),
            "oneof": lambda: self._oneof(message),
            ";": lambda: None,
        }
        special |= dict.fromkeys(("option", "reserved", "extensions", "extend"), self._skip_to_end)
        # A field's type may have one of these names; then a name and a number follow.
        sign, number = (*self._tokens[self._place + 2 : self._place + 4], "", "")[:2]
        if token in special and not (sign == "=" and number[:1].isdigit()):
            self._place += 1
            special[token]()
        else:
            self._field(message)

    def _oneof(self, message: DescriptorProto) -> None:
        number = len(message.oneof_decl)
        message.oneof_decl.add(name=self._take())
        self._expect("{")
        while not self._took("}"):
            if self._took("option"):
                self._skip_to_end()
            elif not self._took(";"):
                self._field(message).oneof_index = number

    def _field(self, message: DescriptorProto) -> FieldDescriptorProto:
        field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
        type_ = self._take()
        if (label := _LABELS.get(type_)) is not None:
            field.label = label
            field.proto3_optional = self._is_proto3 and type_ == "optional"
            type_ = self._take()
        if type_ == "map" and self._next == "<":
            return self._map_field(message, field)
        return self._named(field, type_)

    def _named(self, field: FieldDescriptorProto, type_: str) -> FieldDescriptorProto:
        _set_type(field, type_)
        field.name = self._take()
        self._expect("=")
        field.number = self._number()
        meta = self._options()
        if meta:
            field.options.MergeFromString(_meta_option(meta))
        return field

    def _map_field(self, message: DescriptorProto, field: FieldDescriptorProto) -> FieldDescriptorProto:
        self._expect("<")
        key = self._take()
        self._expect(",")
        member = self._take()
        self._expect(">")
        field.label = FieldDescriptorProto.LABEL_REPEATED
        self._named(field, "?")
        name = f"{''.join(part[:1].upper() + part[1:] for part in field.name.split('_'))}Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, (one, type_) in enumerate((("key", key), ("value", member)), 1):
            _set_type(entry.field.add(name=one, number=number, label=_LABELS["optional"]), type_)
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, name
        return field

    def _options(self) -> dict[str, str]:
        """Skip the options of a field or value and its semicolon; the parameters that Confluent's option gives."""
        found: dict[str, str] = {}
        if self._took("["):
            for inside in _PAIR.findall(" ".join(self._skip_block("]"))):
                pair = dict(re.findall(r"(key|value) :? ?[\"']([^\"']*)[\"']", inside))
                if len(pair) == 2:
                    found[pair["key"]] = pair["value"]
        self._expect(";")
        return found


def _set_type(field: FieldDescriptorProto, type_: str) -> None:
    scalar = _SCALARS.get(type_)
    if scalar is None:
        field.type_name = type_
    else:
        field.type = scalar


def _place_optional_fields(message: DescriptorProto) -> None:
    """Each optional field of proto3 is in a oneof of its own, after those of the text."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _meta_option(params: dict[str, str]) -> bytes:
    meta = GetMessageClass(new_pool().FindMessageTypeByName("confluent.Meta"))(
        params=params
    ).SerializeToString()
    return as_field(_META_FIELD, meta)


def as_field(number: int, message: bytes) -> bytes:
    """The bytes of a field that holds a message."""
    return _varint(number << 3 | 2) + _varint(len(message)) + message


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))
