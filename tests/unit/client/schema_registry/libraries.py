"""confluent_kafka and Felice side by side: the same scenario runs on each, with a registry of its own."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from unit.client.schema_registry.scripted_registry import Registry, Seen, served

# Headers that name the library or its connection.
IGNORED = frozenset({"host", "user-agent", "confluent-client-version", "connection", "accept-encoding"})


async def settled(value: Any) -> Any:
    """The value, or the result of the awaitable that it is."""
    return await value if inspect.isawaitable(value) else value


async def closed(thing: Any) -> None:
    """Close a client, serializer or deserializer."""
    await settled((thing.aclose if hasattr(thing, "aclose") else thing.close)())


@dataclass(frozen=True)
class Library:
    """One library with one face, `blocking` or `asyncio`, and the registry that its clients talk to."""

    package: str
    face: str
    url: str
    registry: Registry

    def module(self, name: str = "") -> Any:
        return importlib.import_module(f"{self.package}.schema_registry{'.' + name if name else ''}")

    def __getattr__(self, name: str) -> Any:
        """A public name; of `AvroSerializer` and its like, the class of this face."""
        prefix = "Async" if self.face == "asyncio" else ""
        for module in map(self.module, ("", "avro", "serde", "json_schema", "protobuf")):
            for candidate in (prefix + name, name):
                if hasattr(module, candidate):
                    return getattr(module, candidate)
        raise AttributeError(name)

    def client(self, **conf: Any) -> Any:
        """A client; keywords have `_` for `.`."""
        quick = {"retries.wait.ms": 1, "retries.max.wait.ms": 2}
        given = {name.replace("_", "."): value for name, value in conf.items()}
        return self.SchemaRegistryClient({"url": self.url, **quick, **given})

    def context(self, topic: str = "t", part: str = "VALUE", headers: Any = None) -> Any:
        serialization = importlib.import_module(f"{self.package}.serialization")
        return serialization.SerializationContext(topic, getattr(serialization.MessageField, part), headers)


Scenario = Callable[[Library], Awaitable[Any]]

FACES = ("blocking", "asyncio")
CONFLUENT, FELICE = "confluent_kafka", "felice.client"


def fault_of(error: BaseException) -> tuple[Any, ...]:
    """The error's class, and of a registry's error its codes and its text."""
    codes = [getattr(error, name, None) for name in ("http_status_code", "error_code")]
    # A code of -1 is the library's own: the text is, too.
    return (type(error).__name__, *codes, str(error) if codes[0] and codes[1] != -1 else None)


@dataclass(frozen=True)
class Outcome:
    """What a scenario returned or raised, and the requests that it sent."""

    result: Any
    error: BaseException | None
    seen: list[Seen]

    @property
    def requests(self) -> list[tuple[Any, ...]]:
        return [one.essence(IGNORED) for one in self.seen]

    @property
    def fault(self) -> tuple[Any, ...] | None:
        return None if self.error is None else fault_of(self.error)


def outcome(
    package: str, face: str, scenario: Scenario, prepare: Callable[[Registry], None] | None = None
) -> Outcome:
    """Run a scenario on one library."""
    registry = Registry()
    if prepare is not None:
        prepare(registry)
    with served(registry) as url:
        library = Library(package, face, url, registry)
        try:
            return Outcome(asyncio.run(scenario(library)), None, registry.seen)  # type: ignore[arg-type]
        except Exception as error:
            return Outcome(None, error, registry.seen)


def same(face: str, scenario: Scenario, prepare: Callable[[Registry], None] | None = None) -> Outcome:
    """Run a scenario on both libraries, check that nothing differs, and return Felice's outcome."""
    theirs = outcome(CONFLUENT, face, scenario, prepare)
    ours = outcome(FELICE, face, scenario, prepare)
    if (theirs.error is None) != (ours.error is None):
        raise AssertionError(f"{theirs.error!r} and {ours.error!r}") from ours.error or theirs.error
    check_equal("error", ours.fault, theirs.fault)
    check_equal("result", repr(ours.result), repr(theirs.result))
    for mine, other in zip(ours.requests, theirs.requests, strict=False):
        check_equal("request", mine, other)
    check_equal("number of requests", len(ours.requests), len(theirs.requests))
    return ours


def check_equal(what: str, ours: object, theirs: object) -> None:
    assert ours == theirs, f"{what}\nFelice:          {ours}\nconfluent_kafka: {theirs}"
