"""Prints the files of a partition and checks them for damage.

It only reads. The lines are those of Kafka's `kafka-dump-log`, so that operators and
scripts can read them without change.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import json_option
from felice.cli.output import show_json
from felice.log.partition_metadata import FILE_NAME
from felice.records.batch import HEADER_SIZE, BatchHeader, verify_crc

if TYPE_CHECKING:
    from felice.records.record import Record

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_PRELUDE = struct.Struct(">qi")


class Damage(Exception):
    """Bytes that are not a valid batch. The text says where they are and what is wrong."""


def batches_of(content: memoryview) -> Iterator[tuple[BatchHeader, bool]]:
    """Yields each batch of a segment, and whether its checksum is right. Raises `Damage` where no batch begins."""
    position = 0
    while position < len(content):
        left = len(content) - position
        if left < HEADER_SIZE:
            raise Damage(f"{left} bytes at position {position} are too few for a batch: a torn tail")
        _, length = _PRELUDE.unpack_from(content, position)
        if length + 12 < HEADER_SIZE or length + 12 > left:
            raise Damage(f"the batch at position {position} says {length + 12} bytes, and {left} are left")
        header = BatchHeader.parse(content, position)
        if header.magic != 2:
            raise Damage(f"the batch at position {position} has magic {header.magic}, expected 2")
        yield header, verify_crc(content, header)
        position += header.size_bytes


def describe_batch(header: BatchHeader, valid: bool) -> dict[str, object]:
    """The facts of a batch, by Kafka's names."""
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": header.position,
        "CreateTime" if not header.is_log_append_time else "LogAppendTime": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": header.codec.name.lower(),
        "crc": header.crc,
        "isvalid": valid,
    }


def describe_record(record: Record) -> dict[str, object]:
    """The facts of a record, by Kafka's names."""
    return {
        "offset": record.offset,
        "CreateTime": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "headerKeys": [key for key, _ in record.headers],
        "key": record.key,
        "payload": record.value,
    }


def _line(facts: dict[str, object], lead: str = "") -> str:
    return lead + " ".join(f"{name}: {_text(value)}" for name, value in facts.items())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return str(value)


def base_offset_of(path: Path) -> int:
    """The first offset of a segment, which is the name of its files. Raises `Fault`."""
    if not (path.stem.isascii() and path.stem.isdigit()):
        raise Fault(f"{path.name} is not named after a segment's first offset, such as {0:020}{path.suffix}")
    return int(path.stem)


def dump_segment(path: Path, *, deep: bool, as_json: bool) -> list[str]:
    """Prints a segment and returns the faults found in it."""
    from felice.records.reader import read_batch

    base = base_offset_of(path)
    content = memoryview(path.read_bytes())
    faults = []
    if not as_json:
        click.echo(f"Dumping {path}\nLog starting offset: {base}")
    try:
        for header, valid in batches_of(content):
            facts = describe_batch(header, valid)
            if not valid:
                faults.append(
                    f"{path}: the checksum of the batch at position {header.position} does not hold"
                )
            records = (
                [describe_record(record) for record in read_batch(content, header)] if deep and valid else []
            )
            if as_json:
                show_json({**facts, **({"records": records} if deep else {})})
                continue
            click.echo(_line(facts))
            for record in records:
                click.echo(_line(record, "| "))
    except Damage as damage:
        faults.append(f"{path}: {damage}")
    return faults


def dump_index(path: Path, *, as_json: bool) -> list[str]:
    """Prints an offset or time index, checks every entry against its segment, and returns the faults."""
    base = base_offset_of(path)
    segment = path.with_suffix(".log")
    if not segment.exists():
        raise Fault(f"{path} has no segment beside it: {segment.name} is missing")
    faults = []
    by_position: dict[int, BatchHeader] = {}
    unknown_from = sys.maxsize
    try:
        for header, _ in batches_of(memoryview(segment.read_bytes())):
            by_position[header.position] = header
    except Damage as damage:
        faults.append(f"{segment}: {damage}")
        unknown_from = max((one.position + one.size_bytes for one in by_position.values()), default=0)
    is_time = path.suffix == ".timeindex"
    form = _TIME_ENTRY if is_time else _INDEX_ENTRY
    content = path.read_bytes()
    if len(content) % form.size:
        faults.append(f"{path}: {len(content)} bytes are no whole number of entries")
    previous = (-1, -1)
    for first, second in form.iter_unpack(content[: len(content) // form.size * form.size]):
        offset = base + (second if is_time else first)
        facts = {"timestamp": first, "offset": offset} if is_time else {"offset": offset, "position": second}
        show_json(facts) if as_json else click.echo(_line(facts))
        if (first, second) == (0, 0) and previous > (0, 0):
            faults.append(f"{path}: an empty entry follows ({previous[0]}, {previous[1]})")
        elif is_time and first < previous[0]:
            faults.append(f"{path}: timestamp {first} comes after {previous[0]}")
        elif not is_time and second < unknown_from and not _points_at(by_position, second, offset):
            faults.append(f"{path}: no batch at position {second} holds offset {offset}")
        previous = (first, second)
    return faults


def _points_at(by_position: dict[int, BatchHeader], position: int, offset: int) -> bool:
    header = by_position.get(position)
    return header is not None and header.base_offset <= offset <= header.last_offset


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--deep-iteration", "deep", is_flag=True, help="Print each record too.")
@json_option
def dump_log(files: tuple[Path, ...], deep: bool, as_json: bool) -> None:
    """Print and check the files of a partition: a directory, .log, .index or .timeindex files.

    \b
    felice dump-log felice-data/flights-0 --deep-iteration

    Exit code 1: something is damaged; the error says what and where.
    """
    dump_files(files, deep=deep, as_json=as_json)


def dump_files(files: Iterable[Path], *, deep: bool, as_json: bool = False) -> None:
    """Prints all files, then raises `Fault` with a list of everything that is damaged."""
    faults: list[str] = []
    for path in _expand(files):
        if path.suffix == ".log":
            faults += dump_segment(path, deep=deep, as_json=as_json)
        elif path.suffix in (".index", ".timeindex"):
            faults += dump_index(path, as_json=as_json)
        else:
            raise Fault(f"{path} is no .log, .index or .timeindex file")
    if faults:
        raise Fault("; ".join(faults))


def _expand(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        if path.is_dir():
            found = sorted(path.glob("*.log"))
            if not found and (path / FILE_NAME).exists():
                click.echo(f"{path} has no batch yet", err=True)
            elif not found:
                raise Fault(f"{path} holds no segments")
            yield from found
        else:
            yield path
