"""Bad input against a process: each input has a clear answer, nothing is lost, and the process continues."""

import contextlib
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.batches import batch_headers_of, fetch_records, fetch_request
from conformance.live_process import LiveProcess, start_in_vain
from conformance.topics import (
    batch_of,
    create_topic_over,
    list_offset,
    new_topic,
    produce,
    produce_request,
    produce_values,
    record,
)
from conformance.wire import Wire, api_of, request_header, unique_name
from felice.protocol.codec import encode
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from felice.records.batch import BatchHeader, verify_crc
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.reader import read_records
from waiting import wait_until

pytestmark = pytest.mark.felice_only

MEBIBYTE = 1 << 20
MEMORY_GROWTH_BYTES = 64 * MEBIBYTE
LIMITS = {"socket.request.max.bytes": "2000000", "max.connections": "300"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProcess]:
    """One process for all inputs that must not harm it."""
    with LiveProcess(tmp_path_factory.mktemp("bad-input") / "data", options=LIMITS) as running:
        yield running
        assert running.terminate() == 0
        assert "Traceback" not in running.stderr()


@pytest.fixture
def unharmed(process: LiveProcess) -> Iterator[LiveProcess]:
    """The process is alive and serves, has not grown, and has no file left open."""
    with process.wire() as wire:
        topic = new_topic(wire)
    weight, files = process.memory_bytes(), process.open_files()
    yield process
    assert process.is_alive(), process.stderr()
    with process.wire() as wire:
        assert produce_values(wire, topic, [b"still here"]) == 0
    assert process.memory_bytes() - weight < MEMORY_GROWTH_BYTES
    wait_until(lambda: process.open_files() <= files + 12)


def frame_of(message: Any, version: int) -> bytes:
    api = api_of(message)
    payload = request_header(api.key, version, 1, "fuzz", api.request_header_version(version))
    payload += encode(message, version)
    return struct.pack(">i", len(payload)) + payload


def sendable(wire: Wire, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        wire.send_raw(data)


# --- frames ---


def test_a_truncated_frame_does_not_disturb_other_connections(unharmed: LiveProcess) -> None:
    whole = frame_of(MetadataRequest(topics=None), 9)
    for cut in (0, 1, 3, 4, 5, 8, len(whole) - 1):
        with unharmed.wire() as half, unharmed.wire() as other:
            half.send_raw(whole[:cut])
            assert other.ask(MetadataRequest(topics=[]), 9).brokers


def test_a_frame_in_single_bytes_is_read(unharmed: LiveProcess) -> None:
    with unharmed.wire() as wire:
        for byte in frame_of(MetadataRequest(topics=[]), 9):
            wire.send_raw(bytes([byte]))
        assert wire.read_frame()


@pytest.mark.parametrize("size", [2_000_001, 2**31 - 1, -1])
def test_an_oversized_frame_closes_its_connection_at_once(unharmed: LiveProcess, size: int) -> None:
    with unharmed.wire() as wire:
        wire.send_raw(struct.pack(">i", size))
        assert wire.is_closed_by_peer()


def test_announced_bytes_that_never_arrive_cost_no_memory(unharmed: LiveProcess) -> None:
    before = unharmed.memory_bytes()
    opened = [unharmed.wire() for _ in range(150)]
    for wire in opened:
        wire.send_raw(struct.pack(">i", 1_900_000) + b"\0\0")
    with unharmed.wire() as wire:
        assert wire.ask(MetadataRequest(topics=[]), 9).brokers
    assert unharmed.memory_bytes() - before < MEMORY_GROWTH_BYTES
    for wire in opened:
        wire.close()


@pytest.mark.parametrize("size", [0, 1, 7, 9])
def test_a_frame_too_small_for_a_header_closes_its_connection(unharmed: LiveProcess, size: int) -> None:
    with unharmed.wire() as wire:
        wire.send_raw(struct.pack(">i", size) + b"\0" * size)
        assert wire.is_closed_by_peer()


def test_an_unknown_api_closes_its_connection(unharmed: LiveProcess) -> None:
    with unharmed.wire() as wire:
        wire.send_frame(request_header(31_000, 0, 1, "x", 1))
        assert wire.is_closed_by_peer()


def test_a_body_with_bytes_left_over_or_missing_closes_its_connection(unharmed: LiveProcess) -> None:
    whole = frame_of(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 8)[4:]
    for body in (whole[:-1], whole[:-3]):
        with unharmed.wire() as wire:
            wire.send_frame(body)
            assert wire.is_closed_by_peer()


def test_an_array_that_claims_billions_of_items_is_refused(unharmed: LiveProcess) -> None:
    head = request_header(3, 1, 1, "x", 1)
    flexible = request_header(3, 9, 1, "x", 2)
    for body in (
        head + struct.pack(">i", 2**31 - 1),
        flexible + b"\xff\xff\xff\xff\x0f",
        flexible + b"\xff" * 12,
    ):
        with unharmed.wire() as wire:
            wire.send_frame(body)
            assert wire.is_closed_by_peer()


def fuzz_bases() -> list[bytes]:
    topic = CreatableTopic(name="fuzzed", num_partitions=1, replication_factor=1)
    joining = JoinGroupRequest(
        group_id="fuzzed",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    return [
        frame_of(MetadataRequest(topics=[MetadataRequestTopic(name="fuzzed")]), 12),
        frame_of(produce_request("fuzzed", batch_of(b"a" * 20, b"b", codec=Codec.GZIP)), 9),
        frame_of(produce_request("fuzzed", batch_of(b"a" * 20, b"b")), 3),
        frame_of(fetch_request("fuzzed", max_wait_ms=0), 12),
        frame_of(CreateTopicsRequest(topics=[topic], timeout_ms=100), 7),
        frame_of(joining, 5),
        frame_of(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="fuzzed", topics=None)]), 8),
        frame_of(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
    ]


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """Changes, removes or repeats a few bytes of the payload, and corrects the size of the frame."""
    payload = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(payload))
        match chance.randrange(4):
            case 0:
                payload[at] = chance.randrange(256)
            case 1:
                payload[at] ^= 1 << chance.randrange(8)
            case 2:
                del payload[at : at + chance.randint(1, 8)]
            case _:
                payload[at:at] = payload[at : at + chance.randint(1, 16)]
        if not payload:
            break
    return struct.pack(">i", len(payload)) + bytes(payload)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_requests_never_harm_the_process(unharmed: LiveProcess, seed: int) -> None:
    chance, bases = random.Random(seed), fuzz_bases()
    for _ in range(60):
        with unharmed.wire() as wire:
            for _ in range(10):
                sendable(wire, mutated(chance.choice(bases), chance))
    assert unharmed.is_alive(), unharmed.stderr()


@pytest.mark.parametrize("seed", range(2))
def test_random_bytes_never_harm_the_process(unharmed: LiveProcess, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        with unharmed.wire() as wire:
            body = chance.randbytes(chance.randint(0, 400))
            sendable(wire, struct.pack(">i", len(body)) + body if chance.random() < 0.7 else body)


def test_other_protocols_are_closed(unharmed: LiveProcess) -> None:
    for greeting in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
    ):
        with unharmed.wire() as wire:
            wire.send_raw(greeting)
            assert wire.is_closed_by_peer()


def test_connections_beyond_the_limit_wait_and_the_others_are_served(tmp_path: Path) -> None:
    with LiveProcess(tmp_path / "data", options={"max.connections": "5"}) as running:
        kept = [running.wire() for _ in range(5)]
        for wire in kept:
            assert wire.ask(MetadataRequest(topics=[]), 9).brokers
        with running.wire() as beyond:
            beyond.send(MetadataRequest(topics=[]), 9)
            for wire in kept:
                assert wire.ask(MetadataRequest(topics=[]), 9).brokers
            kept.pop().close()
            assert beyond.receive(MetadataRequest(), 9).brokers
        for wire in kept:
            wire.close()


# --- records ---


def test_a_decompression_bomb_is_refused(unharmed: LiveProcess) -> None:
    """If the broker must decompress a batch, the decompressed size has a limit."""
    with unharmed.wire() as wire:
        topic = new_topic(wire, compression_type="uncompressed")
        bomb = build_batch([record(b"\0" * (200 * MEBIBYTE))], Codec.ZSTD)
        assert len(bomb) < MEBIBYTE
        row = produce(wire, topic, bomb)
        assert row.error_code in (
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.CORRUPT_MESSAGE,
        )
        assert list_offset(wire, topic, -1).offset == 0


def test_payloads_that_are_not_what_their_codec_says_are_refused(unharmed: LiveProcess) -> None:
    with unharmed.wire() as wire:
        topic = new_topic(wire, compression_type="uncompressed")
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            sent = bytearray(batch_of(b"a" * 100, codec=codec))
            sent[61:] = b"\x07" * (len(sent) - 61)
            row = produce(wire, topic, sealed(sent))
            assert row.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD), codec
        assert list_offset(wire, topic, -1).offset == 0


def sealed(batch: bytearray) -> bytes:
    from felice.records.batch import seal

    seal(batch, 0, len(batch))
    return bytes(batch)


# --- starting ---


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert_refused(start_in_vain(tmp_path / "data", port), str(port))


def test_a_data_directory_in_use_is_named(tmp_path: Path) -> None:
    with LiveProcess(tmp_path / "data") as first:
        assert_refused(start_in_vain(tmp_path / "data"), str(tmp_path / "data"))
        with first.wire() as wire:
            assert produce_values(wire, new_topic(wire), [b"a"]) == 0


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    done = start_in_vain(tmp_path / "data")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "data") in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "0"),
        ("log.segment.bytes", "-1"),
        ("log.retention.ms", "soon"),
    ],
)
def test_a_bad_option_is_named_with_its_value(tmp_path: Path, option: str, value: str) -> None:
    assert_refused(start_in_vain(tmp_path / "data", **{option.replace(".", "_"): value}), option, value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("a file system of its own needs root and mount")
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True
    ).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_read_only_directory_is_named(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert_refused(start_in_vain(small_disk / "data"), str(small_disk / "data"))


def test_a_full_disk_fails_what_cannot_be_stored_and_loses_nothing(small_disk: Path) -> None:
    """KAFKA_STORAGE_ERROR; acknowledged records exist after a restart with free space."""
    acknowledged = 0
    options = {"log.index.size.max.bytes": "100000"}
    with LiveProcess(small_disk / "data", options=options) as running:
        with running.wire() as wire:
            create_topic_over(wire, "filling")
            while (row := produce(wire, "filling", batch_of(b"x" * 500_000))).error_code == 0:
                acknowledged += 1
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert wire.ask(MetadataRequest(topics=[]), 9).brokers
        running.kill()
        assert "Traceback" not in running.stderr()
    assert acknowledged > 5
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    with LiveProcess(small_disk / "data", options=options) as running, running.wire() as wire:
        assert len(batch_headers_of(wire, "filling")) == acknowledged
        assert produce(wire, "filling", batch_of(b"again")).base_offset == acknowledged


# --- files ---

SEGMENT = "00000000000000000000"


def filled(data_dir: Path, end: Callable[[LiveProcess], Any], batches: int = 200) -> Path:
    """The directory of a partition after a broker wrote some batches and stopped."""
    with LiveProcess(data_dir) as running:
        with running.wire() as wire:
            create_topic_over(wire, "kept", index_interval_bytes=100)
            for number in range(batches):
                produce_values(wire, "kept", [b"%d" % number * 20])
        end(running)
    return data_dir / "kept-0"


def assert_all_is_read(data_dir: Path, batches: int = 200) -> str:
    """Checks that every batch is complete and found by offset and by time, and that the next one is appended after
    them; returns the log lines.
    """
    with LiveProcess(data_dir) as running:
        with running.wire() as wire:
            headers = batch_headers_of(wire, "kept")
            assert [header.base_offset for header in headers] == list(range(batches))
            for offset in (0, 57, batches - 1):
                records = fetch_records(wire, "kept", offset)
                assert verify_crc(records, BatchHeader.parse(records))
                assert next(iter(read_records(records))).offset <= offset
            assert list_offset(wire, "kept", 0).offset == 0
            assert produce_values(wire, "kept", [b"next"]) == batches
        running.terminate()
        assert "Traceback" not in running.stderr()
        return running.stderr()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["garbage", "odd size", "gone", "empty"])
def test_a_corrupt_index_is_rebuilt(tmp_path: Path, suffix: str, damage: str) -> None:
    index = filled(tmp_path / "data", LiveProcess.terminate) / (SEGMENT + suffix)
    size = index.stat().st_size
    assert size > 0
    match damage:
        case "garbage":
            index.write_bytes(random.Random(1).randbytes(size))
        case "odd size":
            index.write_bytes(index.read_bytes()[:-3])
        case "gone":
            index.unlink()
        case "empty":
            index.write_bytes(b"")
    assert_all_is_read(tmp_path / "data")


@pytest.mark.parametrize("tail", [b"\0" * 300, b"\xff" * 100, b"half"], ids=["zeros", "ones", "short"])
def test_a_torn_tail_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    segment = filled(tmp_path / "data", LiveProcess.kill) / f"{SEGMENT}.log"
    with segment.open("ab") as file:
        file.write(tail)
    assert_all_is_read(tmp_path / "data")


def test_half_a_batch_at_the_end_is_cut_off(tmp_path: Path) -> None:
    segment = filled(tmp_path / "data", LiveProcess.kill, batches=201) / f"{SEGMENT}.log"
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 7)
    assert_all_is_read(tmp_path / "data")


def test_damage_is_found_by_crc_and_reported_with_file_and_position(tmp_path: Path) -> None:
    segment = filled(tmp_path / "data", LiveProcess.terminate) / f"{SEGMENT}.log"
    content = bytearray(segment.read_bytes())
    position = 0
    for _ in range(50):
        position = BatchHeader.parse(content, position).end
    content[position + 70] ^= 0xFF
    segment.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "dump-log", str(segment)], capture_output=True, text=True
    )
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert str(position) in told
    assert segment.name in told


def test_a_damaged_meta_properties_stops_the_start(tmp_path: Path) -> None:
    filled(tmp_path / "data", LiveProcess.terminate, batches=1)
    meta = tmp_path / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=other-"))
    assert_refused(start_in_vain(tmp_path / "data"), "cluster")


@pytest.mark.parametrize("name", ["recovery-point-offset", "replication-offset", "log-start-offset"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, name: str) -> None:
    """The file is written whole or not at all, so the damage came from elsewhere, and the broker asks the operator."""
    filled(tmp_path / "data", LiveProcess.terminate, batches=1)
    (tmp_path / "data" / f"{name}-checkpoint").write_text("nonsense\n")
    assert_refused(start_in_vain(tmp_path / "data"), f"{name}-checkpoint")


def test_an_unknown_file_in_the_data_directory_is_not_touched(tmp_path: Path) -> None:
    filled(tmp_path / "data", LiveProcess.terminate)
    (tmp_path / "data" / "notes.txt").write_text("mine")
    (tmp_path / "data" / "lost+found").mkdir()
    assert_all_is_read(tmp_path / "data")
    assert (tmp_path / "data" / "notes.txt").read_text() == "mine"


def test_sigterm_stops_cleanly(tmp_path: Path) -> None:
    with LiveProcess(tmp_path / "data") as running:
        with running.wire() as wire:
            create_topic_over(wire, unique_name("kept"))
        assert running.terminate() == 0
        assert running.stderr() == ""
