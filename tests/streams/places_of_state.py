"""What each place of state does, whatever it is on: checked in unit tests, and beside real servers."""

from __future__ import annotations

from typing import BinaryIO

import pytest

from felice.pipelines.streams.on_spark.places import Place


def put(place: Place, name: str, data: bytes) -> None:
    """Write a file as the state is written: its beginning last."""

    def write(file: BinaryIO) -> None:
        file.write(bytes(len(data)))
        file.seek(0)
        file.write(data)

    place.put(name, "mark", write)


def check_files(place: Place) -> None:
    """Write, read, list and remove files in an empty place."""
    assert place.names() == {} and place.children() == []
    with pytest.raises(FileNotFoundError):
        place.read("a")
    place.remove("a")
    put(place, "a", b"one")
    put(place, "a", b"other")
    put(place.child("below").child("deep"), "b", b"two")
    assert place.read("a") == b"other" and place.read("a", 3) == b"oth"
    assert place.names() == {"a": 5} and place.children() == ["below"]
    assert place.child("below").child("deep").read("b") == b"two"
    place.remove("a")
    assert place.names() == {}
    place.child("below").remove_all()
    place.child("below").remove_all()
    assert place.children() == []
