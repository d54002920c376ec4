"""Random descriptors of .proto files, as protoc would write them, and the file whose options they use."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from google.protobuf.descriptor_pb2 import (
    Edition,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FieldOptions,
    FileDescriptorProto,
    MethodOptions,
    SymbolVisibility,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from felice.registry.formats.protobuf.compiling import compile_text
from felice.registry.formats.protobuf.literals import json_name

OPTION_KINDS = [
    "File",
    "Message",
    "Field",
    "Oneof",
    "Enum",
    "EnumValue",
    "Service",
    "Method",
    "ExtensionRange",
]
_OPTIONS = "".join(
    f"""
extend google.protobuf.{kind}Options {{
  optional string {kind}_text = 5001;
  optional bytes {kind}_bytes = 5002;
  optional float {kind}_float = 5003;
  optional double {kind}_double = 5004;
  optional sint64 {kind}_number = 5005;
  repeated Value {kind}_value = 5006;
  optional Choice {kind}_choice = 5007;
  optional bool {kind}_flag = 5008;
}}"""
    for kind in OPTION_KINDS
)
OPTIONS_FILE = "opt/options.proto"
IMPORTED = {
    OPTIONS_FILE: f"""syntax = "proto2";
package opt;
import "google/protobuf/descriptor.proto";
message Value {{
  optional string text = 1;
  repeated int32 numbers = 2;
  map<string, Value> values = 3;
  optional Choice choice = 4;
  extensions 100 to max;
}}
enum Choice {{ NO = 0; YES = 1; }}
extend Value {{ optional Value inner = 100; }}
{_OPTIONS}
"""
}
_SCALARS = [
    number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_GROUP", "TYPE_ENUM")
]
_MAP_KEYS = [t for t in _SCALARS if FieldDescriptorProto.Type.Name(t)[5:] not in ("DOUBLE", "FLOAT", "BYTES")]
_CHARACTERS = "ab\n\t\"'\\ \x00\x7f\x85é☃😀?%{}"
_FLOATS = [0.0, 1.1, -2.5, 1e30, 1e-30, 123456.789, float("inf"), float("-inf"), 16777216.0, 3.0]


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in compile_text(IMPORTED[OPTIONS_FILE].encode(), OPTIONS_FILE, {}).file:
        file.ClearField("source_code_info")
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def comparable(file: bytes) -> Any:
    """A FileDescriptorProto whose custom options are decoded: two are equal if they mean the same."""
    return GetMessageClass(_pool().FindMessageTypeByName("google.protobuf.FileDescriptorProto")).FromString(
        file
    )


def damage(file: Any, random: Random) -> None:
    """Changes one value somewhere in a descriptor."""
    places = []
    waiting = [file]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if not field.is_repeated or value:
                places.append((message, field, value))
            if field.message_type is not None:
                waiting += value if field.is_repeated else [value]
    if not places:
        return
    message, field, value = random.choice(places)
    action = random.randrange(3)
    if action == 0 or (field.message_type is not None and not field.is_repeated):
        message.ClearField(field.name)
    elif field.is_repeated and action == 1:
        del value[random.randrange(len(value))]
    elif field.is_repeated:
        value.append(random.choice(value))
    elif isinstance(value, str):
        others = [other for _, _, other in places if isinstance(other, str)]
        setattr(message, field.name, random.choice([*others, "", "x", ".x", "a b", '"', "é"]))
    elif isinstance(value, bool):
        setattr(message, field.name, not value)
    else:
        numbers = [0, 1, 2, 10, 11, -1, 19_000, 2**31 - 1]
        if field.enum_type is not None:
            numbers = list(field.enum_type.values_by_number)
        setattr(message, field.name, random.choice(numbers))


class RandomFile:
    """`file` is a random FileDescriptorProto."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0
        self._messages: list[str] = []
        self._enums: list[str] = []
        file = self.file = FileDescriptorProto(name="default")
        self._syntax = random.choice(["proto2", "proto3", "editions"])
        if self._syntax != "proto2":
            file.syntax = self._syntax
        if self._syntax == "editions":
            file.edition = random.choice([Edition.EDITION_2023, Edition.EDITION_2024])
            if file.edition == Edition.EDITION_2024:  # which wants other names
                file.options.features.enforce_naming_style = FeatureSet.STYLE_LEGACY
        # A package whose last part hides the package of the options.
        if package := random.choice(["", "a", "a.b.c", "x.opt", "opt"]):
            file.package = package
        file.dependency.append(OPTIONS_FILE)
        if self._chance(3):
            file.dependency.append("google/protobuf/timestamp.proto")
            self._messages.append(".google.protobuf.Timestamp")
            if self._chance():
                file.public_dependency.append(1)
        self._messages.append(".opt.Value")
        scope = f".{file.package}" if file.package else ""
        for _ in range(random.randrange(4)):
            self._message(file.message_type.add(), scope, depth=0)
        for _ in range(random.randrange(3)):
            self._enum(file.enum_type.add(), scope)
        for _ in range(random.randrange(3)):
            self._extension(file.extension.add(), scope)
        for _ in range(random.randrange(2)):
            self._service(file.service.add())
        if self._chance():
            file.options.java_package = self._text()
            file.options.optimize_for = random.choice([1, 2])
        self._custom(file.options, "File")

    def _chance(self, of: int = 2) -> bool:
        return self._random.randrange(of) == 0

    def _name(self, first: str = "n") -> str:
        self._count += 1
        return f"{first}{self._count}{self._random.choice(['', '_', '_x', '_1', 'Y'])}"

    def _text(self) -> str:
        return "".join(self._random.choice(_CHARACTERS) for _ in range(self._random.randrange(6)))

    # Declarations

    def _message(self, message: Any, scope: str, depth: int, is_group: bool = False) -> None:
        random = self._random
        # `opt` hides the package of the options inside the message.
        message.name = self._name("M")
        full_name = f"{scope}.{message.name}"
        # `opt` hides the package of the options.
        if (
            not is_group
            and scope in self._messages
            and f"{scope}.opt" not in self._messages
            and self._chance(5)
        ):
            message.name, full_name = "opt", f"{scope}.opt"
        self._messages.append(full_name)
        self._visible(message)
        numbers = iter(range(1, 1000))
        for _ in range(random.randrange(5)):
            action = random.randrange(6)
            if action == 0 and depth < 2:
                self._message(message.nested_type.add(), full_name, depth + 1)
            elif action == 1:
                self._oneof(message, full_name, numbers)
            elif action == 2:
                self._enum(message.enum_type.add(), full_name)
            else:
                self._field(message, full_name, next(numbers))
        self._optionals(message)
        self._reserved(message, 2000)
        if self._syntax != "proto3" and self._chance(3):
            item = message.extension_range.add(start=3000, end=random.choice([3001, 3100, 1 << 29]))
            self._custom(item.options, "ExtensionRange")
        if self._chance(4):
            self._extension(message.extension.add(), full_name, message)
        if self._chance(4):
            message.options.deprecated = True
        self._custom(message.options, "Message")

    def _visible(self, declaration: Any) -> None:
        if self.file.edition == Edition.EDITION_2024 and self._chance(3):
            # protoc 35 lets only top-level declarations be exported by name under the file's default.
            declaration.visibility = SymbolVisibility.VISIBILITY_EXPORT

    def _reserved(self, owner: Any, first: int) -> None:
        inclusive = isinstance(owner, EnumDescriptorProto)
        for start in range(first, first + 10 * self._random.randrange(3), 10):
            last = start + self._random.randrange(4)
            owner.reserved_range.add(start=start, end=last if inclusive else last + 1)
        for _ in range(self._random.randrange(3)):
            owner.reserved_name.append(self._name("r"))

    def _enum(self, enum: Any, scope: str) -> None:
        enum.name = self._name("E")
        self._visible(enum)
        self._enums.append(f"{scope}.{enum.name}")
        for number in range(self._random.randrange(1, 4)):
            value = enum.value.add(name=self._name("V"), number=-number if number == 2 else number)
            if self._chance(5):
                value.options.deprecated = True
            self._custom(value.options, "EnumValue")
        if self._chance(4):
            enum.options.allow_alias = True
            enum.value.add(name=self._name("V"), number=0)
        self._reserved(enum, 100)
        self._custom(enum.options, "Enum")

    def _service(self, service: Any) -> None:
        service.name = self._name("S")
        for _ in range(self._random.randrange(3)):
            method = service.method.add(name=self._name("R"))
            method.input_type, method.output_type = (self._random.choice(self._messages) for _ in "io")
            method.client_streaming = self._chance()
            method.server_streaming = self._chance()
            for field in ("client_streaming", "server_streaming"):
                if not getattr(method, field):
                    method.ClearField(field)
            if self._chance(4):
                method.options.idempotency_level = MethodOptions.IDEMPOTENT
            self._custom(method.options, "Method")
        self._custom(service.options, "Service")

    # Fields

    def _field(self, message: Any, full_name: str, number: int) -> None:
        field = message.field.add(name=self._name("f"), number=number)
        if self._chance(6):
            self._map(field, message, full_name)
        elif self._syntax == "proto2" and self._chance(6):
            self._group(field, message, full_name)
        else:
            field.label = self._label()
            self._type(field)
        self._finish(field)

    def _label(self) -> Any:
        labels = [FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED]
        if self._syntax == "proto2":
            labels.append(FieldDescriptorProto.LABEL_REQUIRED)
        return self._random.choice(labels)

    def _type(self, field: Any) -> None:
        kind = self._random.randrange(4)
        if kind == 0:
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = self._random.choice(self._messages)
        elif kind == 1 and self._enums:
            field.type = FieldDescriptorProto.TYPE_ENUM
            field.type_name = self._random.choice(self._enums)
        else:
            field.type = self._random.choice(_SCALARS)

    def _map(self, field: Any, message: Any, full_name: str) -> None:
        field.label, field.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE
        words = json_name(field.name)
        entry = message.nested_type.add(name=f"{words[0].upper()}{words[1:]}Entry")
        entry.options.map_entry = True
        field.type_name = f"{full_name}.{entry.name}"
        key = entry.field.add(
            name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL, json_name="key"
        )
        key.type = self._random.choice(_MAP_KEYS)
        value = entry.field.add(name="value", number=2, label=key.label, json_name="value")
        self._type(value)

    def _group(self, field: Any, owner: Any, scope: str) -> None:
        nested = owner.message_type if isinstance(owner, FileDescriptorProto) else owner.nested_type
        self._message(nested.add(), scope, depth=2, is_group=True)
        group = nested[-1]
        field.label, field.type = self._label(), FieldDescriptorProto.TYPE_GROUP
        field.type_name = f"{scope}.{group.name}"
        field.name = group.name.lower()

    def _oneof(self, message: Any, full_name: str, numbers: Any) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name("o"))
        self._custom(oneof.options, "Oneof")
        for _ in range(self._random.randrange(1, 4)):
            field = message.field.add(name=self._name("f"), number=next(numbers), oneof_index=index)
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
            self._type(field)
            self._finish(field)

    def _optionals(self, message: Any) -> None:
        """proto3's `optional`, whose oneofs come after the others."""
        for field in message.field if self._syntax == "proto3" else ():
            single = field.label == FieldDescriptorProto.LABEL_OPTIONAL and not field.HasField("oneof_index")
            if single and self._chance(3):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _extension(self, field: Any, scope: str, owner: Any = None) -> None:
        field.name = self._name("x")
        self._count += 1
        field.number = 6000 + self._count
        field.extendee = ".google.protobuf.FieldOptions"
        field.label = self._random.choice(
            [FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED]
        )
        if self._syntax == "proto2" and self._chance(3):
            self._group(field, owner if owner is not None else self.file, scope)
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
        else:
            self._type(field)
        if "google/protobuf/descriptor.proto" not in self.file.dependency:
            self.file.dependency.append("google/protobuf/descriptor.proto")
        self._finish(field)

    def _finish(self, field: Any) -> None:
        """Options, a default, a name in JSON."""
        kind = FieldDescriptorProto.Type.Name(field.type)[5:]
        single = field.label != FieldDescriptorProto.LABEL_REPEATED
        if (
            self._syntax == "proto2"
            and single
            and kind not in ("MESSAGE", "GROUP", "ENUM")
            and self._chance()
        ):
            field.default_value = self._default(kind)
        field.json_name = json_name(field.name)
        if not field.extendee and kind != "GROUP" and self._chance(5):
            field.json_name = self._name("Json ☃")
        if self._chance(5):
            field.options.deprecated = True
        if kind == "INT64" and self._chance():
            field.options.jstype = FieldOptions.JS_STRING
        plain = single and not field.extendee and not field.HasField("oneof_index")
        if self._syntax == "editions" and plain and kind == "INT32" and self._chance():
            field.options.features.field_presence = FeatureSet.IMPLICIT
        self._custom(field.options, "Field")

    def _default(self, kind: str) -> str:
        random = self._random
        if kind == "STRING":
            return self._text()
        if kind == "BYTES":
            return random.choice(["", "abc", "\\000\\377", "\\\"\\'\\\\", "\\n\\t"])
        if kind == "BOOL":
            return random.choice(["true", "false"])
        if kind in ("FLOAT", "DOUBLE"):
            return random.choice(["0", "1.5", "1e+20", "-inf", "inf", "nan", "-2"])
        return str(random.randrange(5) if kind.startswith(("U", "FIXED")) else random.randrange(-5, 5))

    # Custom options

    def _custom(self, options: Any, kind: str) -> None:
        """Sometimes adds options that the imported file declares."""
        if not self._chance(4):
            return
        random, pool = self._random, _pool()
        message = GetMessageClass(pool.FindMessageTypeByName(f"google.protobuf.{kind}Options"))()
        extensions = {
            name: pool.FindExtensionByName(f"opt.{kind}_{name}")
            for name in ["text", "bytes", "float", "double", "number", "value", "choice", "flag"]
        }
        name = random.choice(list(extensions))
        extension = extensions[name]
        if name == "value":
            for _ in range(random.randrange(1, 3)):
                self._value(message.Extensions[extension].add(), depth=0)
        else:
            message.Extensions[extension] = {
                "text": self._text(),
                "bytes": bytes(random.randrange(256) for _ in range(4)),
                "float": random.choice(_FLOATS),
                "double": random.choice(_FLOATS),
                "number": random.randrange(-(2**63), 2**63),
                "choice": random.randrange(2),
                "flag": self._chance(),
            }[name]
        options.MergeFromString(message.SerializeToString())

    def _value(self, value: Any, depth: int) -> None:
        random = self._random
        if self._chance():
            value.text = self._text()
        value.numbers.extend(range(random.randrange(3)))
        if self._chance():
            value.choice = random.randrange(2)
        if depth < 2 and self._chance():
            self._value(value.values[self._text()], depth + 1)
        if depth < 2 and self._chance(3):
            self._value(value.Extensions[_pool().FindExtensionByName("opt.inner")], depth + 1)
