"""The process in which protoc runs: it answers requests on its standard input until that ends. `compiler` starts it.

    python -m felice.registry.formats.protobuf.worker CPU_SECONDS MEMORY_BYTES IDLE_SECONDS

A request and its answer are JSON documents in UTF-8, each after its length (4 bytes, big-endian). The request has
`text` (.proto text, or a FileDescriptorProto in base64), `references` (texts by import paths, each after those that it
imports) and `form`, a key of `FORMS`. The answer has `text` (the .proto text in that form) and `files` (a
FileDescriptorSet in base64, the schema last), or `error` (why the text is not a schema), or `fault` (a defect of this
program). After a request that took much memory, and after `IDLE_SECONDS` without one, the process ends with status 0.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
import resource
import select
import struct
import sys
import traceback
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from felice.registry.formats.protobuf.compiling import CompileError, compile_text
from felice.registry.formats.protobuf.literals import Unprintable, quoted
from felice.registry.formats.protobuf.options import OptionTexts
from felice.registry.formats.protobuf.printing import CANONICAL, NORMALIZED, WITHOUT_EXTENSIONS, text_of
from felice.registry.formats.protobuf.written_names import WrittenNames

FILE_NAME = "default"
"""The name of the schema's file in `files`, as Confluent's registry has it."""

FORMS = {"canonical": CANONICAL, "normalized": NORMALIZED, "ignore_extensions": WITHOUT_EXTENSIONS}

_SAFE_MAIN = "felice/schema.proto"
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MAX_FILE_BYTES = 128 * 1024 * 1024
"""Limit of each file in memory: protoc's errors and its result, which the limit of memory does not count."""

_MUCH_MEMORY_KIB = 96 * 1024
_LENGTH = struct.Struct(">I")


def answer(request: dict[str, Any]) -> dict[str, str]:
    """The answer to one request, without faults: those are raised."""
    try:
        return _answer(request["text"], request["references"], request["form"])
    except (CompileError, Unprintable) as error:
        return {"error": str(error)}
    except RecursionError:
        return {"error": "the schema nests too deep"}


def _answer(text: str, references: dict[str, str], form: str) -> dict[str, str]:
    imports: dict[str, bytes] = {}
    for name, reference in references.items():
        imports[name] = _as_text(reference, imports)
    main = _SAFE_MAIN
    while main in imports:
        main = f"_{main}"
    body = _as_text(text, imports)
    files = compile_text(body, main, imports)
    schema = files.file[-1]
    names = WrittenNames(body, schema) if form == "canonical" else None
    for file in files.file:
        file.ClearField("source_code_info")
    schema.name = FILE_NAME
    options = OptionTexts(files.file)
    printed = text_of(schema, options, names, FORMS[form])
    return {"text": printed, "files": base64.b64encode(files.SerializeToString()).decode()}


def _as_text(schema: str, imports: dict[str, bytes]) -> bytes:
    """The .proto text of a schema that is text or a FileDescriptorProto in base64."""
    schema = schema.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    encoded = schema.strip()
    # Text has a space, a semicolon or a brace.
    if not _BASE64.fullmatch(encoded):
        return schema.encode()
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(encoded, validate=True))
    except (binascii.Error, DecodeError):
        raise CompileError("the schema is neither .proto text nor a FileDescriptorProto in base64") from None
    _check_strings(file)
    return text_of(file, OptionTexts([*_imported(file, imports), file])).encode()


def _check_strings(file: Any) -> None:
    """Refuses strings that are not UTF-8, for which the library returns bytes."""
    waiting = [file]
    while waiting:
        for field, value in waiting.pop().ListFields():
            values = value if field.is_repeated else [value]
            if field.message_type is not None:
                waiting += values
            elif field.type == field.TYPE_STRING and not all(isinstance(item, str) for item in values):
                raise Unprintable(f"the descriptor has a {field.name} that is not UTF-8")


def _imported(file: Any, imports: dict[str, bytes]) -> list[Any]:
    """The descriptors of all files that `file` imports: an option may need them to be written as text."""
    names = [*file.dependency, *file.option_dependency]
    if not names:
        return []
    statements = "".join(f"import {quoted(name)};" for name in names)
    main = "imports.proto"
    while main in names or main in imports:
        main = f"_{main}"
    files = compile_text(f'syntax = "proto3";{statements}'.encode(), main, imports)
    return list(FileDescriptorSet(file=files.file[:-1]).file)


def _peak_memory_kib() -> int:
    """The greatest memory of this process. `getrusage` would also count that of the process that started it."""
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM:")).split()[1])


class _Worker:
    def __init__(self, cpu_s: int, memory_bytes: int, idle_s: float) -> None:
        self._cpu_s = cpu_s
        self._idle_s = idle_s
        self._input = sys.stdin.buffer
        # Nothing else may write between the answers.
        self._output = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def run(self) -> None:
        """Answers requests until the input ends, the worker was idle for long, or a request took much memory."""
        while select.select([self._input], [], [], self._idle_s)[0]:
            head = self._input.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return
            request = json.loads(self._input.read(_LENGTH.unpack(head)[0]))
            self._limit_time()
            self._send(self._answer(request))
            if _peak_memory_kib() > _MUCH_MEMORY_KIB:
                return

    def _answer(self, request: dict[str, Any]) -> dict[str, str]:
        try:
            return answer(request)
        except MemoryError:
            return {"error": "the schema needs too much memory"}
        except Exception as error:
            traceback.print_exc()
            return {"fault": f"{type(error).__name__}: {error}"}

    def _limit_time(self) -> None:
        """Lets the kernel end this process after some more seconds of processor time."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        limit = math.ceil(usage.ru_utime + usage.ru_stime) + self._cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))

    def _send(self, document: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self._output.write(_LENGTH.pack(len(body)) + body)
        self._output.flush()


def main() -> None:
    """Answers requests on standard input; see the module's description for the arguments."""
    cpu_s, memory_bytes, idle_s = sys.argv[1:]
    _Worker(int(cpu_s), int(memory_bytes), float(idle_s)).run()


if __name__ == "__main__":
    main()
