"""Descriptors as .proto text, in the form that Confluent's registry returns.

Keeps true:  protoc compiles the text to the same descriptor, and writes the same text for that one. Only three things
             may differ: comments, the order of declarations that mean the same in each order, and names of map entries.
             What the text cannot express raises `Unprintable`.
How:         the declarations of a file or message stand in blocks, with an empty line between two blocks: in a message
             reserved numbers, options, fields, extension ranges, nested types, extensions. A oneof stands where its
             first field stands, and a nested message comes before a field that follows it in the descriptor and
             declares a message too (a map or a group): the order of fields and messages remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    FieldDescriptorProto,
    FileDescriptorProto,
    SymbolVisibility,
)

from felice.dataclass import dataclass
from felice.registry.formats.protobuf import literals
from felice.registry.formats.protobuf.literals import Unprintable, identifier, type_name
from felice.registry.formats.protobuf.options import OptionTexts, Setting
from felice.registry.formats.protobuf.written_names import Path, WrittenNames

Lines = list[str]

_INDENT = "  "
_MAX_FIELD = 1 << 29
"""The end (exclusive) of the numbers of fields."""

_MAX_INT32 = (1 << 31) - 1
"""The greatest number of an enum's value; the end of the numbers in a message with `message_set_wire_format`."""

_SCALARS = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_VISIBILITY = {SymbolVisibility.VISIBILITY_EXPORT: "export ", SymbolVisibility.VISIBILITY_LOCAL: "local "}


@dataclass(frozen=True, slots=True)
class Form:
    """Which of the equivalent texts of a descriptor is wanted."""

    sorted_imports: bool = False
    extensions: bool = True
    """Whether the text has extensions, extension ranges and custom options."""


CANONICAL = Form()
NORMALIZED = Form(sorted_imports=True)
WITHOUT_EXTENSIONS = Form(extensions=False)


def text_of(
    file: Any, options: OptionTexts, names: WrittenNames | None = None, form: Form = CANONICAL
) -> str:
    """The .proto text of `file`, a FileDescriptorProto.

    Without `names`, the names of types are full ones with a dot before them.
    """
    return "\n".join(_Printer(file, options, names, form).file()) + "\n"


class _Printer:
    def __init__(self, file: Any, options: OptionTexts, names: WrittenNames | None, form: Form) -> None:
        self._file = file
        self._syntax = file.syntax or "proto2"
        self._options = options
        self._names = names
        self._form = form
        self._scope = file.package

    def file(self) -> Lines:
        file = self._file
        head = [self._edition()]
        if file.package:
            head.append(f"package {type_name(file.package)};")
        scope = _Scope(f".{file.package}" if file.package else "", file.message_type, file.extension)
        types = self._types_and_extensions(file, (), scope)
        services = [
            line
            for index, service in enumerate(file.service)
            for line in self._service(service, (FileDescriptorProto.SERVICE_FIELD_NUMBER, index))
        ]
        return _blocks(head, self._imports(), self._statements(file.options), *types, services)

    def _edition(self) -> str:
        if self._syntax != "editions":
            return f"syntax = {literals.quoted(self._syntax)};"
        names = {number: name for name, number in Edition.items()}
        return f"edition = {literals.quoted(names.get(self._file.edition, '').removeprefix('EDITION_'))};"

    def _imports(self) -> Lines:
        file = self._file
        words = {
            **dict.fromkeys(file.public_dependency, "public "),
            **dict.fromkeys(file.weak_dependency, "weak "),
        }
        imports = [(name, words.get(index, "")) for index, name in enumerate(file.dependency)]
        imports += [(name, "option ") for name in file.option_dependency]
        if self._form.sorted_imports:
            imports.sort(key=lambda item: (item[1] == "option ", item))
        return [f"import {word}{literals.quoted(name)};" for name, word in imports]

    # Options

    def _settings(self, options: Any) -> list[Setting]:
        settings = self._options.settings(options, self._scope)
        return settings if self._form.extensions else [s for s in settings if not s[0].startswith("(")]

    def _statements(self, options: Any) -> Lines:
        return [f"option {name} = {value};" for name, value in self._settings(options)]

    # Messages and enums

    def _message(self, message: Any, path: Path, outer: str) -> Lines:
        head = f"{_VISIBILITY.get(message.visibility, '')}message {identifier(message.name)}"
        return _body(head, self._content(message, path, outer))

    def _content(self, message: Any, path: Path, outer: str) -> Lines:
        scope = _Scope(f"{outer}.{message.name}", message.nested_type, [*message.field, *message.extension])
        around, self._scope = self._scope, scope.name[1:]
        blocks = (
            self._reserved(message, last=_MAX_FIELD - 1, inclusive=False),
            self._statements(message.options),
            self._fields(message, path, scope),
            self._extension_ranges(message) if self._form.extensions else [],
            *self._types_and_extensions(message, path, scope),
        )
        self._scope = around
        return _blocks(*blocks)

    def _types_and_extensions(self, owner: Any, path: Path, scope: _Scope) -> tuple[Lines, Lines]:
        """The two last blocks of a file or message; extensions come first if they declare messages, as groups do."""
        declaring = self._form.extensions and any(
            scope.declares(field) is not None for field in owner.extension
        )
        if declaring:
            extensions = self._extensions(owner, path, scope)
            return extensions, self._types(owner, path, scope)
        types = self._types(owner, path, scope)
        return types, self._extensions(owner, path, scope) if self._form.extensions else []

    def _types(self, owner: Any, path: Path, scope: _Scope) -> Lines:
        """The enums, and the messages that are not printed yet, in the order of the written text."""
        enum_number = owner.ENUM_TYPE_FIELD_NUMBER
        entries: list[tuple[Path, Lines]] = self._taken(scope.take(None), path, scope)
        entries += [
            (at, self._enum(enum, at))
            for index, enum in enumerate(owner.enum_type)
            for at in [(*path, enum_number, index)]
        ]
        if self._names is not None:
            position = self._names.position
            entries.sort(key=lambda entry: position(entry[0]))
        return [line for _, lines in entries for line in lines]

    def _taken(self, messages: list[tuple[int, Any]], path: Path, scope: _Scope) -> list[tuple[Path, Lines]]:
        return [
            (at, self._message(m, at, scope.name)) for index, m in messages for at in [_nested(path, index)]
        ]

    def _before(self, field: Any, path: Path, scope: _Scope) -> Lines:
        """The messages that the descriptor has before the one that `field` declares itself."""
        declared = scope.declares(field)
        earlier = [] if declared is None else self._taken(scope.take(declared), path, scope)
        return [line for _, lines in earlier for line in lines]

    def _reserved(self, owner: Any, *, last: int, inclusive: bool) -> Lines:
        ranges = [_range(r.start, r.end if inclusive else r.end - 1, last) for r in owner.reserved_range]
        quote = identifier if self._syntax == "editions" else literals.quoted
        names = [quote(name) for name in owner.reserved_name]
        return [f"reserved {', '.join(items)};" for items in (ranges, names) if items]

    def _extension_ranges(self, message: Any) -> Lines:
        lines = []
        for item in message.extension_range:
            last = _MAX_INT32 - 1 if item.end > _MAX_FIELD else _MAX_FIELD - 1
            settings = self._settings(item.options)
            lines += _statement(f"extensions {_range(item.start, item.end - 1, last)}", settings)
        return lines

    def _enum(self, enum: Any, path: Path) -> Lines:
        values: Lines = []
        for value in enum.value:
            values += _statement(f"{identifier(value.name)} = {value.number}", self._settings(value.options))
        reserved = self._reserved(enum, last=_MAX_INT32, inclusive=True)
        head = f"{_VISIBILITY.get(enum.visibility, '')}enum {identifier(enum.name)}"
        return _body(head, _blocks(reserved, self._statements(enum.options), values))

    # Fields

    def _fields(self, message: Any, path: Path, scope: _Scope) -> Lines:
        members = _oneof_members(message)
        lines: Lines = []
        for index, field in enumerate(message.field):
            if field.proto3_optional or not field.HasField("oneof_index"):
                lines += self._before(field, path, scope)
                lines += self._field(field, (*path, message.FIELD_FIELD_NUMBER, index), scope)
            elif inside := members.pop(field.oneof_index, None):
                for _, member in inside:
                    lines += self._before(member, path, scope)
                oneof = message.oneof_decl[field.oneof_index]
                lines += self._oneof(oneof, inside, (*path, message.FIELD_FIELD_NUMBER), scope)
        if members:
            raise Unprintable(f"the message {message.name[:80]!r} has a oneof without fields")
        return lines

    def _oneof(self, oneof: Any, fields: Iterable[tuple[int, Any]], path: Path, scope: _Scope) -> Lines:
        lines = self._statements(oneof.options)
        for index, field in fields:
            lines += self._field(field, (*path, index), scope, in_oneof=True)
        return _body(f"oneof {identifier(oneof.name)}", lines)

    def _field(self, field: Any, path: Path, scope: _Scope, *, in_oneof: bool = False) -> Lines:
        label = "" if in_oneof else self._label(field)
        declared = scope.declares(field)
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            if declared is None:
                raise Unprintable(f"the group {field.name[:80]!r} is declared outside of its message")
            return self._group(field, label, declared, path, scope)
        kind = (
            label + self._type(field, path) if declared is None else self._map(scope.messages[declared], path)
        )
        return _statement(f"{kind} {identifier(field.name)} = {field.number}", self._field_settings(field))

    def _label(self, field: Any) -> str:
        implicit = field.label == FieldDescriptorProto.LABEL_OPTIONAL and not field.proto3_optional
        return "" if implicit and self._syntax != "proto2" else _LABELS[field.label]

    def _type(self, field: Any, path: Path) -> str:
        """The type of the field at `path`, or of the value of the map there."""
        if not field.type_name:
            if not field.HasField("type") or field.type not in _SCALARS:
                raise Unprintable(f"the field {field.name[:80]!r} has no type")
            return str(_SCALARS[field.type])
        return self._written((*path, FieldDescriptorProto.TYPE_NAME_FIELD_NUMBER), field.type_name)

    def _written(self, path: Path, full_name: str) -> str:
        full_name = type_name(full_name)
        return full_name if self._names is None else self._names.type_name(path, full_name)

    def _map(self, entry: Any, path: Path) -> str:
        if [field.number for field in entry.field] != [1, 2]:
            raise Unprintable(f"the entry {entry.name[:80]!r} of a map has not the two fields key and value")
        key, value = entry.field
        return f"map<{self._type(key, path)}, {self._type(value, path)}>"

    def _group(self, field: Any, label: str, declared: int, path: Path, scope: _Scope) -> Lines:
        message = scope.messages[declared]
        if field.name != message.name.lower():
            raise Unprintable(f"the group {message.name[:80]!r} is the type of a field with another name")
        head = f"{label}group {identifier(message.name)} = {field.number}"
        settings = self._field_settings(field)
        if settings:
            head += f" [{', '.join(f'{name} = {value}' for name, value in settings)}]"
        return _body(head, self._content(message, _nested(path[:-2], declared), scope.name))

    def _field_settings(self, field: Any) -> list[Setting]:
        settings = []
        if field.HasField("default_value"):
            settings.append(("default", _default(field)))
        if field.json_name and field.json_name != literals.json_name(field.name) and not field.extendee:
            settings.append(("json_name", literals.quoted(field.json_name)))
        return settings + self._settings(field.options)

    def _extensions(self, owner: Any, path: Path, scope: _Scope) -> Lines:
        """One `extend` for neighbours that extend the same message."""
        lines: Lines = []
        inside: Lines = []
        for index, field in enumerate(owner.extension):
            at = (*path, owner.EXTENSION_FIELD_NUMBER, index)
            if earlier := self._before(field, path, scope):
                lines += earlier
            inside += self._field(field, at, scope)
            following = owner.extension[index + 1] if index + 1 < len(owner.extension) else None
            if (
                following is None
                or following.extendee != field.extendee
                or scope.declares(following) is not None
            ):
                extendee = self._written((*at, FieldDescriptorProto.EXTENDEE_FIELD_NUMBER), field.extendee)
                lines += _body(f"extend {extendee}", inside)
                inside = []
        return lines

    # Services

    def _service(self, service: Any, path: Path) -> Lines:
        methods = [
            line
            for index, method in enumerate(service.method)
            for line in self._method(method, (*path, service.METHOD_FIELD_NUMBER, index))
        ]
        return _body(
            f"service {identifier(service.name)}", _blocks(self._statements(service.options), methods)
        )

    def _method(self, method: Any, path: Path) -> Lines:
        request = self._written((*path, method.INPUT_TYPE_FIELD_NUMBER), method.input_type)
        response = self._written((*path, method.OUTPUT_TYPE_FIELD_NUMBER), method.output_type)
        sent = "stream " if method.client_streaming else ""
        returned = "stream " if method.server_streaming else ""
        head = f"rpc {identifier(method.name)} ({sent}{request}) returns ({returned}{response})"
        options = self._statements(method.options)
        return _body(head, options) if options else [f"{head};"]


class _Scope:
    """The messages that a file or message declares, some of them by maps and groups among `fields`."""

    def __init__(self, name: str, messages: Sequence[Any], fields: Iterable[Any]) -> None:
        self.name = name
        self.messages = messages
        self._indexes = {f"{name}.{message.name}": index for index, message in enumerate(messages)}
        self._declared = {self.declares(field) for field in fields}
        self._next = 0
        for index, message in enumerate(messages):
            if message.options.map_entry and index not in self._declared:
                raise Unprintable(f"no map has the entry {message.name[:80]!r}")

    def declares(self, field: Any) -> int | None:
        """The index of the message that `field` declares by being a map or a group."""
        index = self._indexes.get(field.type_name)
        if index is None:
            return None
        is_group = field.type == FieldDescriptorProto.TYPE_GROUP
        return index if is_group or self.messages[index].options.map_entry else None

    def take(self, end: int | None) -> list[tuple[int, Any]]:
        """The messages before the index `end` that have declarations of their own, without those taken earlier."""
        end = len(self.messages) if end is None else end
        taken = [(i, self.messages[i]) for i in range(self._next, end) if i not in self._declared]
        self._next = max(self._next, end)
        return taken


def _oneof_members(message: Any) -> dict[int, list[tuple[int, Any]]]:
    """The fields of each oneof, with their indexes, without the oneofs that stand for proto3's `optional`."""
    synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
    members: dict[int, list[tuple[int, Any]]] = {
        index: [] for index in range(len(message.oneof_decl)) if index not in synthetic
    }
    for index, field in enumerate(message.field):
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index not in members:
                raise Unprintable(f"the field {field.name[:80]!r} is in a oneof that does not exist")
            members[field.oneof_index].append((index, field))
    return members


def _nested(path: Path, index: int) -> Path:
    """The path of a message in the file, or in the message at `path`."""
    number = (
        DescriptorProto.NESTED_TYPE_FIELD_NUMBER if path else FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
    )
    return (*path, number, index)


def _default(field: Any) -> str:
    value = field.default_value
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return literals.quoted(value)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return literals.quoted_escaped(value)
    return identifier(value) if field.type == FieldDescriptorProto.TYPE_ENUM else literals.number(value)


def _range(start: int, end: int, last: int) -> str:
    """Numbers from `start` to `end`, both inclusive; `last` is the greatest that there is."""
    return str(start) if start == end else f"{start} to {'max' if end == last else end}"


def _statement(text: str, settings: list[Setting]) -> Lines:
    """A declaration with its options in brackets: one of them on the same line, several on a line each."""
    if not settings:
        return [f"{text};"]
    items = [f"{name} = {value}" for name, value in settings]
    if len(items) == 1:
        return [f"{text} [{items[0]}];"]
    return [f"{text} [", *(f"{_INDENT}{item}," for item in items[:-1]), f"{_INDENT}{items[-1]}", "];"]


def _body(head: str, lines: Lines) -> Lines:
    if not lines:
        return [f"{head} {{}}"]
    return [f"{head} {{", *(_INDENT + line if line else line for line in lines), "}"]


def _blocks(*blocks: Lines) -> Lines:
    """The blocks that have lines, with an empty line between two."""
    lines: Lines = []
    for block in blocks:
        if block:
            lines += ["", *block] if lines else block
    return lines
