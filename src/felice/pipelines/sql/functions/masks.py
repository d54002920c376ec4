"""MASK and the functions like it, which replace characters of a text."""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import category

from felice.pipelines.sql.functions.table import scalar

_DEFAULTS = ("X", "x", "n", "-")
_KINDS = {"Lu": 0, "Ll": 1, "Nd": 2}
_OTHER = 3
_MASKS = "upper STRING, lower STRING, digit STRING, other STRING"
Masks = tuple[str | None, ...]


def _masked(text: str, masks: Masks) -> str:
    """The text with each character replaced by the mask of its kind; a mask of None keeps it."""
    return "".join(masks[_KINDS.get(category(one), _OTHER)] or one for one in text)


def _checked(masks: Masks) -> Masks:
    for mask in masks:
        if mask is not None and len(mask) != 1:
            raise ValueError(f"a mask is one character, and got {mask!r:.40}")
    return masks or _DEFAULTS


@scalar(
    "MASK(text STRING) -> STRING",
    "The text with X for capitals, x for small letters, n for digits, and - for other characters.",
    ("MASK('My Test $123')", "'Xx-Xxxx--nnn'"),
)
@scalar(
    f"MASK(text STRING, {_MASKS}) -> STRING",
    "The text with each character replaced by the mask of its kind. A mask of NULL keeps the characters of its kind.",
    ("MASK('My Test $123', '*', NULL, '1', NULL)", "'*y *est $111'"),
    takes_nulls=True,
)
def masked(text: str | None, *masks: str | None) -> str | None:
    """Raises ValueError for masks that are not one character."""
    return None if text is None else _masked(text, _checked(masks))


def _register(name: str, what: str, result: str, divide: Callable[[str, int], int], masks_left: bool) -> None:
    """A function that masks one side of a text. `divide` says where that side begins or ends."""

    def mask_side(text: str | None, count: int | None, *masks: str | None) -> str | None:
        if text is None or count is None:
            return None
        if count < 0:
            raise ValueError(f"{name} needs a number of characters that is not negative, and got {count}")
        at, used = divide(text, count), _checked(masks)
        if masks_left:
            return _masked(text[:at], used) + text[at:]
        return text[:at] + _masked(text[at:], used)

    scalar(f"{name}(text STRING, count INTEGER) -> STRING", what, (f"{name}('My Test $123', 4)", result))(
        mask_side
    )
    scalar(
        f"{name}(text STRING, count INTEGER, {_MASKS}) -> STRING",
        f"{what} A mask of NULL keeps the characters of its kind.",
        (f"{name}('AAAAAA', 3, '*', NULL, NULL, NULL)", "'***AAA'" if masks_left else "'AAA***'"),
        takes_nulls=True,
    )(mask_side)


def _from_left(text: str, count: int) -> int:
    return min(count, len(text))


def _from_right(text: str, count: int) -> int:
    return max(len(text) - count, 0)


_register(
    "MASK_LEFT", "The text with its first `count` characters masked.", "'Xx-Xest $123'", _from_left, True
)
_register(
    "MASK_RIGHT", "The text with its last `count` characters masked.", "'My Test -nnn'", _from_right, False
)
_register(
    "MASK_KEEP_LEFT",
    "The text with all characters masked, except its first `count`.",
    "'My Txxx--nnn'",
    _from_left,
    False,
)
_register(
    "MASK_KEEP_RIGHT",
    "The text with all characters masked, except its last `count`.",
    "'Xx-Xxxx-$123'",
    _from_right,
    True,
)
