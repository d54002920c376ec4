"""Kafka's deserializers of plain types, by class name: how a console consumer prints the bytes of a key or value.

Each prints what `toString()` of Java's value gives.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable

from felice.cli.faults import Fault
from felice.dataclass import dataclass

_PACKAGE = "org.apache.kafka.common.serialization."
# Java writes smaller and larger numbers with an exponent.
_LEAST_PLAIN, _MOST_PLAIN = 1e-3, 1e7


@dataclass(frozen=True, slots=True)
class Deserializer:
    """Prints bytes as the deserializer of this name reads them."""

    name: str
    print: Callable[[bytes], str]

    def __call__(self, data: bytes) -> bytes:
        """The value as text; raises `Fault` for bytes that are no value of this type."""
        try:
            return self.print(data).encode()
        except (ValueError, struct.error):
            raise Fault(f"{self.name} cannot read {len(data)} bytes: {data[:32]!r}") from None


def deserializer_of(class_name: str) -> Deserializer | None:
    """The deserializer, or None for bytes that are printed as they are. Raises `Fault` for an unknown class."""
    name = class_name.strip()
    short = name.removeprefix(_PACKAGE)
    if name != short and short in _AS_THEY_ARE:
        return None
    if name == short or short not in _PRINTED:
        known = ", ".join(sorted({*_PRINTED, *_AS_THEY_ARE}))
        raise Fault(f"there is no deserializer {class_name}; in {_PACKAGE.rstrip('.')} are {known}")
    return Deserializer(short, _PRINTED[short])


def _number(layout: str) -> Callable[[bytes], str]:
    return lambda data: str(struct.unpack(layout, data)[0])


def _boolean(data: bytes) -> str:
    return {b"\0": "false", b"\1": "true"}[data] if data in (b"\0", b"\1") else _refuse()


def _double(data: bytes) -> str:
    (number,) = struct.unpack(">d", data)
    return _as_java(number, repr(number))


def _float(data: bytes) -> str:
    (number,) = struct.unpack(">f", data)
    if not math.isfinite(number):
        return _as_java(number, "")
    # The shortest text that gives the same four bytes.
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    return _as_java(number, next(text for text in texts if _is_float(data, float(text))))


def _is_float(data: bytes, number: float) -> bool:
    try:
        return struct.pack(">f", number) == data
    except OverflowError:
        return False


def _as_java(number: float, shortest: str) -> str:
    """The number as Java's `toString` writes it. `shortest` has as many digits as the number needs."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "-Infinity" if number < 0 else "Infinity"
    sign = "-" if math.copysign(1, number) < 0 else ""
    if number == 0:
        return f"{sign}0.0"
    mantissa, _, exponent = f"{abs(float(shortest)):.{_digits(shortest) - 1}e}".partition("e")
    digits, power = mantissa.replace(".", "").rstrip("0") or "0", int(exponent)
    if not _LEAST_PLAIN <= abs(number) < _MOST_PLAIN:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole = digits.ljust(power + 1, "0")
    return f"{sign}{whole[: power + 1]}.{whole[power + 1 :] or '0'}"


def _digits(text: str) -> int:
    mantissa = text.lower().partition("e")[0]
    return max(1, len(mantissa.lstrip("-").replace(".", "").lstrip("0")))


def _uuid(data: bytes) -> str:
    text = data.decode()
    return str(uuid.UUID(text)) if len(text) == 36 else _refuse()


def _bytes(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in data)


def _void(data: bytes) -> str:
    return _refuse()


def _refuse() -> str:
    raise ValueError


_PRINTED: dict[str, Callable[[bytes], str]] = {
    "BooleanDeserializer": _boolean,
    "BytesDeserializer": _bytes,
    "DoubleDeserializer": _double,
    "FloatDeserializer": _float,
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "ShortDeserializer": _number(">h"),
    "StringDeserializer": lambda data: data.decode(errors="replace"),
    "UUIDDeserializer": _uuid,
    "VoidDeserializer": _void,
}
_AS_THEY_ARE = frozenset(("ByteArrayDeserializer", "ByteBufferDeserializer"))
