"""Classes of Protobuf messages that a program made from descriptors, in the programs that are sent to workers.

Keeps true:  a class that no other process can import travels as its files, and is made once in each process: all
             functions and formats of an application have the same class there.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from felice.dataclass import dataclass

if TYPE_CHECKING:
    from google.protobuf.message import Message

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type as its files."""

    name: str
    files: tuple[bytes, ...]
    """Serialized descriptors, each after those that it imports."""

    @staticmethod
    def of(message: type[Message]) -> MessageType:
        """The type of a class."""
        files: dict[str, bytes] = {}

        def add(file: Any) -> None:
            if file.name not in files:
                for used in file.dependencies:
                    add(used)
                files[file.name] = file.serialized_pb

        add(message.DESCRIPTOR.file)
        return MessageType(message.DESCRIPTOR.full_name, tuple(files.values()))

    def made(self) -> type[Message]:
        """The class of this type in this process."""
        with _lock:
            return _class_of(self)


@functools.cache
def _pool_of(files: tuple[bytes, ...]) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return pool


@functools.cache
def _class_of(kind: MessageType) -> type[Message]:
    from google.protobuf.message_factory import GetMessageClass

    # One pool for all types of a file, so that a field's message is of the class that the program names.
    made: type[Message] = GetMessageClass(_pool_of(kind.files).FindMessageTypeByName(kind.name))
    return made


def reduced(given: Any) -> tuple[Callable[[MessageType], type[Message]], tuple[MessageType]] | None:
    """How pickle shall write this object, if it is a message class that no other process can import; otherwise None."""
    library = sys.modules.get("google.protobuf.message")
    if library is None or not isinstance(given, type) or not issubclass(given, library.Message):
        return None
    if getattr(given, "DESCRIPTOR", None) is None or _is_importable(given):
        return None
    return MessageType.made, (MessageType.of(given),)


def _is_importable(kind: type[Any]) -> bool:
    """Whether another process finds this class by the names of its module and itself."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind
