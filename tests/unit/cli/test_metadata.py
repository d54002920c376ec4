"""`felice metadata journal`: show, export and repair, with JSON, on the files of a stopped broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from felice.cli.main import felice, run
from felice.env import SystemDisk
from felice.metadata import Create
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.frames import read_frames

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory whose metadata store has two topics."""

    async def fill() -> None:
        (tmp_path / "data").mkdir()
        store = EmbeddedStore.open(SystemDisk(), tmp_path / "data" / "metadata")
        for topic in ("t", "u"):
            await store.multi([Create(f"/{topic}", b"{}"), Create(f"/{topic}/state", b"\xff")])
        await store.close()

    asyncio.run(fill())
    return tmp_path / "data"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def invoke(*arguments: object) -> tuple[int, str, str]:
        code = run(felice, ["metadata", "journal", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


def _flip(data: Path, frame: int, byte: int) -> None:
    path = data / "metadata" / "journal"
    journal = bytearray(path.read_bytes())
    journal[read_frames(bytes(journal)).frames[frame].start + byte] ^= 0x40
    path.write_bytes(journal)


def _paths(answer: dict[str, Any], key: str) -> list[str]:
    return [change["path"] for frame in answer[key] for change in frame["changes"]]


def test_show_names_every_change(data: Path, call: Call) -> None:
    code, out, _ = call("show", data)
    assert code == 0
    assert "created /t, created /t/state" in out
    assert "created /u, created /u/state" in out


def test_show_as_json_has_data_and_damage(data: Path, call: Call) -> None:
    _flip(data, 0, 30)
    code, out, err = call("show", data / "metadata", "--json")
    answer = json.loads(out)
    assert (code, answer["damage"]["position"], answer["damage"]["recoverable"]) == (1, 0, False)
    assert _paths(answer, "frames") == []
    assert _paths(answer, "frames_behind_damage") == ["/u", "/u/state"]
    assert answer["frames_behind_damage"][0]["changes"][1]["data"] == {"base64": "/w=="}
    assert "damaged at byte 0" in err


def test_export_holds_the_nodes(data: Path, call: Call) -> None:
    code, out, _ = call("export", data)
    answer = json.loads(out)
    assert code == 0 and answer["damage"] is None
    assert {node["path"]: node["data"] for node in answer["nodes"]} == {
        "/": "",
        "/t": "{}",
        "/t/state": {"base64": "/w=="},
        "/u": "{}",
        "/u/state": {"base64": "/w=="},
    }


def test_repair_recovers_frames_and_names_the_copy_of_the_old_journal(data: Path, call: Call) -> None:
    _flip(data, 0, 4)
    assert call("show", data)[0] == 1
    code, out, _ = call("repair", data, "--json")
    answer = json.loads(out)
    assert (code, answer["recovered_frames"], answer["dropped_bytes"]) == (0, 1, 0)
    assert Path(answer["copy"]).exists()
    assert call("show", data)[0] == 0
    assert "nothing was changed" in call("repair", data)[1]


def test_repair_needs_cut_to_drop_writes_and_lists_them(data: Path, call: Call) -> None:
    _flip(data, 0, 30)
    code, _, err = call("repair", data)
    assert code == 1 and "--cut" in err
    code, out, _ = call("repair", data, "--cut")
    assert code == 0 and "created /u" in out


def test_repair_beside_a_running_broker_is_refused(data: Path, call: Call) -> None:
    lock = SystemDisk().lock(data / "metadata" / ".lock")
    try:
        code, _, err = call("repair", data)
    finally:
        lock.release()
    assert code == 1 and "in use" in err


def test_a_directory_without_a_journal_is_named(tmp_path: Path, call: Call) -> None:
    code, _, err = call("show", tmp_path)
    assert code == 1 and "has no metadata journal" in err and "Traceback" not in err
