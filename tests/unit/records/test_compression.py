"""Codecs: framing that other clients accept, size limits, and broken data."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard

from felice.records.compression import Codec, compress, decompress
from felice.records.errors import BatchTooLarge, CorruptBatch

MIB = 1024 * 1024
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"line %d of some text\n" % number for number in range(9000))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(3_000_000)], ids=["empty", "byte", "text", "zeros"])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data
    assert bytes(decompress(codec, memoryview(bytearray(compress(codec, memoryview(data)))))) == data


def test_uncompressed_data_is_not_copied() -> None:
    data = memoryview(TEXT)
    assert decompress(Codec.NONE, data) is data
    assert compress(Codec.NONE, data) is data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 12)), (Codec.ZSTD, (-5, 1, 19))]
)
def test_levels(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert bytes(decompress(codec, compress(codec, TEXT, level))) == TEXT


def test_lz4_level_9_means_the_fast_compressor() -> None:
    assert compress(Codec.LZ4, TEXT, 9) == compress(Codec.LZ4, TEXT)
    assert len(compress(Codec.LZ4, TEXT, 10)) < len(compress(Codec.LZ4, TEXT, 9))


def test_lz4_blocks_are_independent_and_64_kib() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert (info["block_linked"], info["block_size"], info["content_size"]) == (False, 65536, 0)


def test_snappy_is_written_in_xerial_blocks() -> None:
    data = bytes(compress(Codec.SNAPPY, TEXT))
    assert data[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", data, 16)
    assert bytes(cramjam.snappy.decompress_raw(data[20 : 20 + length])) == TEXT[: 32 * 1024]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_is_read_after_broken_and_too_large_data(codec: Codec) -> None:
    good = bytes(compress(codec, TEXT))
    for broken in (good[:-5], good[: len(good) // 2], good[:30] + bytes(20) + good[50:]):
        with pytest.raises(CorruptBatch):
            decompress(codec, broken)
        assert decompress(codec, good) == TEXT
    with pytest.raises(BatchTooLarge):
        decompress(codec, good, len(TEXT) - 1)
    assert decompress(codec, good) == TEXT


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_gzip_of_several_members_is_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_concatenated_data_is_read_as_java_reads_it(codec: Codec) -> None:
    parts = TEXT, b"x", TEXT[::-1]
    assert bytes(decompress(codec, b"".join(compress(codec, part) for part in parts))) == b"".join(parts)
    with pytest.raises(BatchTooLarge):
        decompress(codec, b"".join(compress(codec, part) for part in parts), 2 * len(TEXT))
    with pytest.raises(CorruptBatch):
        decompress(codec, bytes(compress(codec, TEXT)) + bytes(compress(codec, TEXT))[:-5])


def test_only_the_first_lz4_frame_is_read_as_in_java() -> None:
    assert decompress(Codec.LZ4, bytes(compress(Codec.LZ4, TEXT)) + bytes(compress(Codec.LZ4, b"x"))) == TEXT


# What Java's readers of Kafka 4.3.1 do with each.
@pytest.mark.parametrize(
    ("codec", "junk", "is_ignored"),
    [
        (Codec.GZIP, b"j", True),
        (Codec.GZIP, bytes(30), True),
        (Codec.LZ4, b"junk junk", True),
        (Codec.SNAPPY, b"jun", True),
        (Codec.SNAPPY, bytes(4), False),
        (Codec.SNAPPY, b"junk junk", False),
        (Codec.ZSTD, b"j", False),
        (Codec.ZSTD, bytes(30), False),
    ],
)
def test_bytes_behind_the_data_are_treated_as_by_java(codec: Codec, junk: bytes, is_ignored: bool) -> None:
    data = bytes(compress(codec, TEXT)) + junk
    if is_ignored:
        assert bytes(decompress(codec, data)) == TEXT
    else:
        with pytest.raises(CorruptBatch):
            decompress(codec, data)


def test_zstd_of_a_streaming_writer_is_read() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    frame = stream.compress(TEXT) + stream.flush()
    assert zstandard.frame_content_size(frame) == -1
    assert decompress(Codec.ZSTD, frame) == TEXT
    assert decompress(Codec.ZSTD, frame + frame) == TEXT + TEXT
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, frame[:-3])
    with pytest.raises(BatchTooLarge):
        decompress(Codec.ZSTD, frame, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompressed_size_is_bounded(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, len(TEXT)) == TEXT
    with pytest.raises(BatchTooLarge):
        decompress(codec, data, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_corrupt(codec: Codec) -> None:
    data = bytes(compress(codec, TEXT[:5000]))
    for size in [0, 1, 5, 12, 20, 22, len(data) // 2, len(data) - 1]:
        with pytest.raises(CorruptBatch):
            decompress(codec, data[:size])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_noise_is_corrupt(codec: Codec) -> None:
    for noise in (b"\xff" * 40, b"not compressed at all, just text", bytes(40)):
        with pytest.raises(CorruptBatch):
            decompress(codec, noise)


def test_a_snappy_block_length_is_checked() -> None:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for length in (-1, 0, 100, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, header + struct.pack(">i", length) + b"abc")


def test_names() -> None:
    assert Codec.of_name("lz4") is Codec.LZ4
    assert Codec.of_name("uncompressed") is Codec.of_name("none") is Codec.NONE
    with pytest.raises(ValueError, match="brotli"):
        Codec.of_name("brotli")


def test_codecs_are_not_imported_before_they_are_used() -> None:
    script = (
        "import sys, felice.records.validate, felice.records.arrow\n"
        "print([name for name in ('lz4', 'zstandard', 'cramjam', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_takes_little_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(128 * MIB)))
    limit = 16 * MIB
    whole = bytes(compress(codec, bytes(limit)))
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decompress(codec, bomb, limit)
        assert tracemalloc.get_traced_memory()[1] < 2 * limit
        tracemalloc.clear_traces()
        assert len(decompress(codec, whole, limit)) == limit
        assert tracemalloc.get_traced_memory()[1] < 1.5 * limit
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_without_a_size_is_limited_too() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    bomb = stream.compress(bytes(128 * MIB)) + stream.flush()
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decompress(Codec.ZSTD, bomb, 16 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, MIB - 1, MIB, MIB + 1, 3 * MIB + 17])
def test_gzip_data_of_any_size_and_several_members_is_whole(size: int) -> None:
    text = random.Random(size).randbytes(size)
    packed = gzip.compress(text)
    assert decompress(Codec.GZIP, packed) == text
    assert decompress(Codec.GZIP, packed + gzip.compress(b"more")) == text + b"more"
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, packed[:-1])
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, packed + packed[:-1])
