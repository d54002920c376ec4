"""Random JSON with envelopes of schema and payload, as JsonConverter writes it; most of it is valid."""

from __future__ import annotations

import base64
import random
from typing import Any

DATA = "org.apache.kafka.connect.data."
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Envelopes:
    """A source of random schemas and of payloads that mostly fit them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def envelope(self) -> Any:
        chance = self.random.random()
        if chance < 0.03:
            return {"schema": None, "payload": self.plain(3)}
        schema = self.schema(3)
        envelope = {"schema": schema, "payload": self.payload(schema)}
        return self.spoiled(envelope) if chance > 0.8 else envelope

    def schema(self, depth: int) -> dict[str, Any]:
        kinds = [*INTEGERS, "float", "double", "boolean", "string", "bytes", "logical"]
        if depth:
            kinds += ["array", "map", "struct", "struct"]
        kind = self.random.choice(kinds)
        made: dict[str, Any] = {"type": kind, "optional": self.random.random() < 0.4}
        if kind == "array":
            made["items"] = self.schema(depth - 1)
        elif kind == "map":
            made |= {
                "keys": self.random.choice([{"type": "string"}, {"type": "int32"}]),
                "values": self.schema(depth - 1),
            }
        elif kind == "struct":
            names = self.random.sample(["a", "b", "ä", "d e", "f"], self.random.randint(0, 4))
            made["fields"] = [{**self.schema(depth - 1), "field": name} for name in names]
        elif kind == "logical":
            made |= self.random.choice(
                [
                    {"type": "bytes", "name": f"{DATA}Decimal", "version": 1, "parameters": {"scale": "2"}},
                    {"type": "int32", "name": f"{DATA}Date", "version": 1},
                    {"type": "int32", "name": f"{DATA}Time", "version": 1},
                    {"type": "int64", "name": f"{DATA}Timestamp", "version": 1},
                ]
            )
        elif self.random.random() < 0.2:
            made |= {"name": "n.S", "version": 3, "doc": "why"}
        if self.random.random() < 0.15 and kind not in ("struct", "array", "map"):
            made["default"] = self.payload({**made, "optional": False})
        return made

    def payload(self, schema: dict[str, Any]) -> Any:
        chance = self.random
        if schema.get("optional") and chance.random() < 0.3:
            return None
        kind, name = schema["type"], schema.get("name", "")
        if name.startswith(DATA):
            return self.logical(name)
        if kind in INTEGERS:
            return chance.choice([0, 1, -1, chance.getrandbits(INTEGERS[kind]) - (1 << INTEGERS[kind] - 1)])
        if kind in ("float", "double"):
            return chance.choice([0.0, 1.5, -2.25, 3, 1e300 if kind == "double" else 1e30, 0.1])
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "string":
            return chance.choice(["", "x", "ü€", 'a"\\', "\u2028\x01", "😀"])
        if kind == "bytes":
            return base64.b64encode(chance.randbytes(chance.randint(0, 4))).decode()
        if kind == "array":
            return [self.payload(schema["items"]) for _ in range(chance.randint(0, 3))]
        if kind == "map":
            if schema["keys"]["type"] == "string":
                return {
                    key: self.payload(schema["values"]) for key in chance.sample("xyz", chance.randint(0, 3))
                }
            return [[number, self.payload(schema["values"])] for number in range(chance.randint(0, 2))]
        return {one["field"]: self.payload(one) for one in schema["fields"]}

    def logical(self, name: str) -> Any:
        if name.endswith("Decimal"):
            return base64.b64encode(self.random.randbytes(self.random.randint(1, 9))).decode()
        if name.endswith("Time"):
            return self.random.randrange(86_400_000)
        return self.random.randrange(-100_000, 100_000)

    def plain(self, depth: int) -> Any:
        kinds = [None, True, 5, 2.5, "x", 1 << 40]
        if depth and self.random.random() < 0.5:
            return self.random.choice(
                [
                    [self.plain(depth - 1), self.plain(depth - 1)],
                    {"a": self.plain(depth - 1), "ü": self.plain(depth - 1)},
                ]
            )
        return self.random.choice(kinds)

    def spoiled(self, value: Any) -> Any:
        """The value with one part replaced or left out."""
        if isinstance(value, dict) and value and self.random.random() < 0.85:
            key = self.random.choice(list(value))
            if self.random.random() < 0.2:
                return {name: one for name, one in value.items() if name != key}
            return {**value, key: self.spoiled(value[key])}
        if isinstance(value, list) and value and self.random.random() < 0.85:
            at = self.random.randrange(len(value))
            return [self.spoiled(one) if number == at else one for number, one in enumerate(value)]
        return self.random.choice([None, True, 7, -2.5, "y", [], {}, 1 << 70])
