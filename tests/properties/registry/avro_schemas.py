"""Random Avro schemas as JSON, and changes of them: most are valid, and most pairs are close to compatible."""

from __future__ import annotations

import copy
import random
from typing import Any

Json = Any
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
NAMES = ["A", "B", "C", "x.A", "x.B", "y.z.C", "Ä"]
FIELDS = ["f", "g", "h", "i"]
SYMBOLS = ["P", "Q", "R", "S"]
PROPS: list[tuple[str, Json]] = [
    ("logicalType", "date"),
    ("logicalType", "decimal"),
    ("precision", 4),
    ("scale", 2),
    ("zeta", {"b": 1, "a": [None, True, 1.5, 1e21, '\x01"\\/ü€😀']}),
    ("alpha", -0.00001),
    ("items", "int"),
    ("default", None),
]


class Schemas:
    """A source of random schemas. Each schema defines a name once and may mention it before and after."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._defined: list[str] = []

    def schema(self) -> Json:
        self._defined = []
        if self.random.random() < 0.8:
            return self._record(3)
        return self._type(3)

    def _type(self, depth: int, space: str | None = None) -> Json:
        choice = self.random.random()
        if depth <= 0 or choice < 0.35:
            return self._primitive()
        if choice < 0.45 and self._defined:
            return self.random.choice(self._defined) if self.random.random() < 0.93 else "Later"
        if choice < 0.55:
            return self._with_props({"type": "array", "items": self._type(depth - 1)})
        if choice < 0.65:
            return self._with_props({"type": "map", "values": self._type(depth - 1)})
        if choice < 0.8:
            return self._union(depth)
        if choice < 0.87:
            return self._enum()
        if choice < 0.92:
            return self._fixed()
        return self._record(depth - 1)

    def _primitive(self) -> Json:
        name = self.random.choice(PRIMITIVES)
        return name if self.random.random() < 0.8 else self._with_props({"type": name})

    def _union(self, depth: int) -> Json:
        branches = [self._type(depth - 1) for _ in range(self.random.randint(0, 4))]
        distinct = {_branch_name(branch): branch for branch in branches if not isinstance(branch, list)}
        found = list(distinct.values())
        return found if self.random.random() < 0.97 else found + found[:1]

    def _named(self, kind: str) -> dict[str, Json]:
        json: dict[str, Json] = {"type": kind, "name": self._new_name()}
        if self.random.random() < 0.3:
            json["namespace"] = self.random.choice(["x", "y.z", ""])
        if self.random.random() < 0.3:
            json["aliases"] = self.random.sample(NAMES, self.random.randint(1, 2))
        if self.random.random() < 0.2:
            json["doc"] = self.random.choice(["says", "", "€"])
        return json

    def _new_name(self) -> str:
        free = [name for name in NAMES if name not in self._defined]
        name = self.random.choice(free) if free and self.random.random() < 0.95 else self.random.choice(NAMES)
        self._defined.append(name)
        return name

    def _enum(self) -> Json:
        json = self._named("enum")
        json["symbols"] = self.random.sample(SYMBOLS, self.random.randint(1, 4))
        if self.random.random() < 0.3:
            json["default"] = self.random.choice(json["symbols"])
        return self._with_props(json)

    def _fixed(self) -> Json:
        return self._with_props({**self._named("fixed"), "size": self.random.choice([0, 2, 12, 16])})

    def _record(self, depth: int) -> Json:
        json = self._named("error" if self.random.random() < 0.05 else "record")
        names = self.random.sample(FIELDS, self.random.randint(0, 4))
        json["fields"] = [self._field(name, depth) for name in names]
        return self._with_props(json)

    def _field(self, name: str, depth: int) -> Json:
        json: dict[str, Json] = {"name": name, "type": self._type(depth)}
        if self.random.random() < 0.5:
            json["default"] = self._default(json["type"])
        if self.random.random() < 0.2:
            json["order"] = self.random.choice(["ascending", "descending", "IGNORE"])
        if self.random.random() < 0.3:
            json["aliases"] = self.random.sample([*FIELDS, "e", "d", "c", "b"], 1)
        if self.random.random() < 0.1:
            json["doc"] = "of the field"
        return self._with_props(json)

    def _default(self, schema: Json) -> Json:
        if self.random.random() < 0.03:
            return self.random.choice([None, 1, "NaN", [], {}])
        match schema:
            case [first, *_]:
                return self._default(first)
            case []:
                return None
            case {"type": "array", "items": items}:
                return [self._default(items) for _ in range(self.random.randint(0, 2))]
            case {"type": "map", "values": values}:
                return {name: self._default(values) for name in self.random.sample("abc", 1)}
            case {"type": "enum", "symbols": symbols}:
                return self.random.choice(symbols)
            case {"type": "fixed"}:
                return "ab"
            case {"type": "record" | "error", "fields": fields}:
                return {field["name"]: self._default(field["type"]) for field in fields}
            case {"type": str(name)} | str(name):
                return self._primitive_default(name)
        return None

    def _primitive_default(self, name: str) -> Json:
        values: dict[str, list[Json]] = {
            "null": [None],
            "boolean": [True, False],
            "int": [0, -7, 2**31 - 1],
            "long": [0, 2**40, -(2**63)],
            "float": [0.5, 1e10, 3, "NaN", "-Infinity"],
            "double": [0.1, -1e-7, 12345678.9, 3, "1e3"],
            "bytes": ["", "\u00ff\u0000"],
            "string": ["", "text\n\u2028", "😀"],
        }
        return self.random.choice(values.get(name, [{}]))

    def _with_props(self, json: dict[str, Json]) -> dict[str, Json]:
        if self.random.random() < 0.2:
            for name, value in self.random.sample(PROPS, self.random.randint(1, 3)):
                json.setdefault(name, value)
        return json

    def changed(self, schema: Json, changes: int) -> Json:
        """A copy with a few changes that a developer might make."""
        changed = copy.deepcopy(schema)
        for _ in range(changes):
            places = _places(changed)
            if places:
                self._change(self.random.choice(places))
        return changed

    def _change(self, json: Json) -> None:
        if isinstance(json, list):
            if json and self.random.random() < 0.5:
                json.pop(self.random.randrange(len(json)))
            else:
                json.insert(self.random.randint(0, len(json)), self._primitive())
        elif "fields" in json:
            self._change_record(json)
        elif "symbols" in json:
            json["symbols"] = self.random.sample(SYMBOLS, self.random.randint(1, 4))
            json.pop("default", None)
            if self.random.random() < 0.3:
                json["default"] = json["symbols"][0]
        elif "size" in json:
            json["size"] = self.random.choice([2, 12, 16])
        else:
            for member in ("items", "values", "type"):
                if member in json and self.random.random() < 0.6:
                    json[member] = self._primitive() if self.random.random() < 0.7 else [json[member], "null"]
                    json.pop("default", None)

    def _change_record(self, json: Json) -> None:
        fields = json["fields"]
        choice = self.random.random()
        if choice < 0.35:
            json["fields"] = [*fields, self._field(self.random.choice(FIELDS), 1)]
        elif choice < 0.7 and fields:
            fields.pop(self.random.randrange(len(fields)))
        elif choice < 0.8:
            json["name"] = self.random.choice(NAMES)
        else:
            json["aliases"] = self.random.sample(NAMES, 1)


def _branch_name(branch: Json) -> str:
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))


def _places(json: Json) -> list[Json]:
    """All schemas inside a schema that can be changed."""
    found = []
    if isinstance(json, list):
        found.append(json)
        for inner in json:
            found += _places(inner)
    elif isinstance(json, dict):
        found.append(json)
        for member in ("items", "values"):
            if isinstance(json.get(member), (dict, list)):
                found += _places(json[member])
        for field in json.get("fields", ()):
            found.append(field)
            found += _places(field["type"])
    return found
