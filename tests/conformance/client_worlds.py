"""What a call of one of the two clients gives, in a form that both clients share."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import enum
import importlib
import inspect
import itertools
import re
import types
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

T = 30.0
_MODULES = ("", ".admin", ".serialization", ".error", ".aio")
_ADDRESS = re.compile(r"0x[0-9a-f]+|^<.*object at.*>$")
_ERRORS = (TypeError, ValueError, AttributeError, RuntimeError, OverflowError, KeyError, IndexError)


class World:
    """One client library beside a broker: its names, and what each call of a table gives. Threads may share it."""

    def __init__(self, library: str, bootstrap: str, topic: str) -> None:
        self.library, self.bootstrap, self.topic = library, bootstrap, topic
        self.k = importlib.import_module(library)
        self._prefix = f"{library.replace('.', '-').replace('_', '-')}-{id(self)}"
        self._admin: Any = None
        self.names: dict[str, Any] = {}
        for suffix in _MODULES:
            module = importlib.import_module(library + suffix)
            self.names |= {name: getattr(module, name) for name in dir(module) if not name.startswith("__")}
        self.names |= {name: getattr(self, name) for name in ("k", "topic", "admin", "bootstrap")}
        self.names["T"] = T

    def admin(self) -> Any:
        """An admin client, the same for all calls."""
        if self._admin is None:
            module = importlib.import_module(f"{self.library}.admin")
            self._admin = module.AdminClient({"bootstrap.servers": self.bootstrap})
        return self._admin

    def outcome(self, call: str) -> object:
        """Run statements; the value of the last one, or what was raised, as plain values."""
        return _Call(self, f"{self._prefix}.{abs(hash(call)) % 10**8}").outcome(call)


class _Call:
    """One call: its clients, which are closed at its end, and the unused names that it was given."""

    def __init__(self, world: World, prefix: str) -> None:
        self.k = world.k
        self._library, self._bootstrap, self._prefix = world.library, world.bootstrap, prefix
        self._numbers = itertools.count()
        self._closing: list[Callable[[], object]] = []
        self._awaiting: list[Callable[[], Awaitable[object]]] = []
        given = ("consumer", "producer", "aconsumer", "aproducer", "own_admin", "fresh")
        self.names = world.names | {name: getattr(self, name) for name in given}
        self._client_kinds = (self.k.Consumer, self.k.Producer, self.names["AdminClient"])

    def fresh(self) -> str:
        """A name that nothing has yet, for a topic, a group or a transactional id."""
        return f"{self._prefix}-{next(self._numbers)}"

    def _client(self, kind: str, close: str, settings: dict[str, Any]) -> Any:
        keys = {name.replace("_", "."): value for name, value in settings.items()}
        # librdkafka would write its warnings between the lines of the test run.
        created = getattr(self.k, kind)({"bootstrap.servers": self._bootstrap, "log_level": 2, **keys})
        self._closing.append(getattr(created, close))
        return created

    def aconsumer(self, **settings: Any) -> Any:
        """A consumer of coroutines, with a group of its own."""
        return self._asynchronous(
            "AIOConsumer", {"group_id": self.fresh(), "auto_offset_reset": "earliest", **settings}
        )

    def aproducer(self, **settings: Any) -> Any:
        """A producer of coroutines."""
        return self._asynchronous("AIOProducer", settings)

    def _asynchronous(self, kind: str, settings: dict[str, Any]) -> Any:
        keys = {name.replace("_", "."): value for name, value in settings.items()}
        created = self.names[kind]({"bootstrap.servers": self._bootstrap, **keys})
        self._awaiting.append(created.close)
        return created

    def own_admin(self) -> Any:
        """An admin client for one call."""
        return self.names["AdminClient"]({"bootstrap.servers": self._bootstrap})

    def consumer(self, **settings: Any) -> Any:
        """A consumer of a group of its own."""
        return self._client(
            "Consumer", "close", {"group_id": self.fresh(), "auto_offset_reset": "earliest", **settings}
        )

    def producer(self, **settings: Any) -> Any:
        """A producer."""
        return self._client("Producer", "purge", settings)

    def outcome(self, call: str) -> object:
        """See `World.outcome`."""
        tree = ast.parse(call)
        last = tree.body.pop()
        assert isinstance(last, ast.Expr | ast.Assign), call
        names = dict(self.names)
        try:
            if "await " in call:
                return asyncio.run(self._awaited([*tree.body, last], names))
            exec(compile(tree, call, "exec"), names)
            if isinstance(last, ast.Assign):
                exec(compile(ast.Module([last], []), call, "exec"), names)
                value = None
            else:
                value = eval(compile(ast.Expression(last.value), call, "eval"), names)
            return self._plain(value)
        except Exception as error:
            return self._raised(error)
        finally:
            names.clear()
            self._close()

    async def _awaited(self, statements: list[ast.stmt], names: dict[str, Any]) -> object:
        """The outcome of statements with `await`, in the form of `outcome`."""
        try:
            value = None
            for node in statements:
                is_value = isinstance(node, ast.Expr)
                part = ast.Expression(node.value) if isinstance(node, ast.Expr) else ast.Module([node], [])
                mode = "eval" if is_value else "exec"
                code = compile(part, "call", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                value = eval(code, names)
                if code.co_flags & inspect.CO_COROUTINE:
                    value = await value
            return self._plain(value)
        except Exception as error:
            return self._raised(error)
        finally:
            while self._awaiting:
                with contextlib.suppress(RuntimeError):  # the call itself closed it
                    await self._awaiting.pop()()

    def _close(self) -> None:
        while self._closing:
            with contextlib.suppress(RuntimeError):  # the call itself closed it
                self._closing.pop()()

    def _raised(self, error: BaseException) -> object:
        if isinstance(error, self.k.KafkaException):
            first = error.args[0] if error.args else None
            return "raises", type(error).__name__, self._plain(first)
        return "raises", next(kind.__name__ for kind in (*_ERRORS, type(error)) if isinstance(error, kind))

    def _plain(self, value: Any) -> Any:
        """The value without the classes of its library."""
        if value is None or type(value) in (bool, int, float, bytes):
            return value
        if isinstance(value, str):
            return _ADDRESS.sub("", value.replace(self._prefix, "fresh")).replace(self._library, "k")
        if isinstance(value, Future):
            try:
                return self._plain(value.result(T))
            except Exception as error:
                return self._raised(error)
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, dict):
            return {self._hashable(key): self._plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(each) for each in value]
        if isinstance(value, set | frozenset):
            return {self._hashable(each) for each in value}
        if isinstance(value, BaseException) and not isinstance(value, self.k.KafkaError):
            return self._raised(value)
        if callable(value) or isinstance(value, types.ModuleType):
            return getattr(value, "__name__", "callable")
        if isinstance(value, self._client_kinds):
            return type(value).__name__
        return {
            "class": type(value).__name__,
            **{name: self._plain(each) for name, each in self._parts(value)},
        }

    def _hashable(self, value: Any) -> Any:
        if isinstance(value, self.k.TopicPartition):
            return f"{value.topic}-{value.partition}"
        if isinstance(value, self.names["ConfigResource"]):
            return str(value)
        plain = self._plain(value)
        return repr(plain) if isinstance(plain, dict | list | set) else plain

    def _parts(self, value: Any) -> Iterator[tuple[str, Any]]:
        """The facts of a value that programs read: attributes, and the methods of errors and messages."""
        if isinstance(value, self.k.KafkaError):
            yield "name", value.name()
            yield "fatal", value.fatal()
            yield "abort", value.txn_requires_abort()
            return
        if isinstance(value, self.k.Message):
            for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "error"):
                yield name, getattr(value, name)()
            return
        for name in sorted(set(dir(value))):
            if not name.startswith("_") and not name.endswith("_int"):
                found = getattr(value, name)
                if not callable(found):
                    yield name, found


def agree(ours: Any, theirs: Any) -> bool:
    """Whether two outcomes are the same; our values may have further attributes."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and "class" in theirs:
        return all(name in ours and agree(ours[name], value) for name, value in theirs.items())
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(agree(ours[name], theirs[name]) for name in theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(agree, ours, theirs))
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(agree, ours, theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)
