"""Runs protoc in this process, which must be one that may die: see `compiler`.

Keeps true:  protoc reads only the given texts and the files of `known_files`. It writes no file.
How:         texts and results are files in memory (`memfd_create`), which protoc opens below /proc/self/fd. Each has
             its import path by an argument `--proto_path=PATH=FILE`; protoc refuses absolute paths and `..`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import _protoc_compiler

from felice.registry.formats.protobuf.known_files import CONFLUENT_FILES, google_directories

MAX_ERRORS = 5
"""So many errors of protoc are told: a text of 5 MiB can have more than a hundred thousand."""

MAX_ERROR_CHARACTERS = 1000
"""The length to which the errors together are cut. They can quote the text."""

_MAX_ERROR_BYTES = 64 * 1024
_ERROR = re.compile(r"(?P<file>[^:\n]+)(:(?P<line>\d+):(?P<column>\d+))?: (?P<text>.+)")
_LOG = re.compile(r"[WI]\d{4} |WARNING: ")  # of Abseil, which protoc uses
_MEMORY_FILE = re.compile(r"/proc/self/fd/(\d+)")


class CompileError(Exception):
    """protoc refused the text. The message has its first errors with their places, in one line."""


def compile_text(text: bytes, main: str, imports: Mapping[str, bytes]) -> Any:
    """The FileDescriptorSet of `text` as the file `main`, after all that it imports, with the source info of all.

    `imports` are the texts of files by their import paths. Raises `CompileError`.
    """
    google = google_directories()
    files = {main: text, **{name: body.encode() for name, body in CONFLUENT_FILES.items()}, **imports}
    with ExitStack() as stack:
        arguments = [f"--proto_path={name}={directory}" for name, directory in google[:1]]
        names = {}
        for name, body in files.items():
            descriptor = stack.enter_context(_memory_file(body))
            names[str(descriptor)] = name
            arguments.append(f"--proto_path={name}=/proc/self/fd/{descriptor}")
        arguments += [f"--proto_path={name}={directory}" for name, directory in google[1:]]
        result = stack.enter_context(_memory_file(b""))
        arguments += ["--include_imports", "--include_source_info", "--retain_options"]
        arguments.append(f"--descriptor_set_out=/proc/self/fd/{result}")
        with _standard_error() as errors:
            status = _protoc_compiler.run_main([a.encode() for a in ("protoc", *arguments, main)])
            if status != 0:
                raise CompileError(_first_errors(os.pread(errors, _MAX_ERROR_BYTES, 0), names, main))
        return FileDescriptorSet.FromString(_content(result))


@contextmanager
def _memory_file(body: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("proto")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(body)
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()


@contextmanager
def _standard_error() -> Iterator[int]:
    """Collects what protoc writes to file descriptor 2 in a file in memory."""
    saved = os.dup(2)
    try:
        with _memory_file(b"") as errors:
            os.dup2(errors, 2)
            try:
                yield errors
            finally:
                os.dup2(saved, 2)
    finally:
        os.close(saved)


def _first_errors(output: bytes, names: Mapping[str, str], main: str) -> str:
    """The first errors in protoc's output, which names files in memory by their numbers, without its warnings."""
    texts: list[str] = []
    for line in output.decode(errors="replace").splitlines():
        line = _MEMORY_FILE.sub(lambda found: names.get(found[1], found[0]), line)
        error = _ERROR.fullmatch(line)
        if error is None or error["text"].startswith("warning:") or _LOG.match(line):
            continue
        place = f"line {error['line']}, column {error['column']}: " if error["line"] else ""
        if error["file"] != main:
            place = f"{error['file']}: {place}"
        texts.append(place + error["text"])
    whole = "; ".join(text.rstrip(".") for text in texts[:MAX_ERRORS]) or "protoc gives no reason"
    return whole if len(whole) <= MAX_ERROR_CHARACTERS else f"{whole[:MAX_ERROR_CHARACTERS]} …"
