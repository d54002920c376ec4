"""The codecs of a batch: gzip, snappy, lz4 and zstd, framed as every Kafka client frames them.

Keeps true:  readers of Java and librdkafka accept the output of `compress`: snappy in xerial
             blocks, lz4 as a frame of independent 64 KiB blocks, gzip and zstd as plain streams;
             `decompress` never returns more than `max_size_bytes` and never trusts a size
             that the data claims. It reads concatenated gzip members, snappy streams and zstd frames.
             It treats bytes behind the last as Java's readers do: they are an error for zstd, ignored
             for gzip and lz4, and for snappy ignored if they are fewer than the 4 bytes of a length.
Broken data raises `CorruptBatch`, data above the limit `BatchTooLarge`. Codecs are imported at first
use: a broker whose topics keep the producer's compression does not spend time on them at start.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from felice.protocol.primitives import Buffer
from felice.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec

if TYPE_CHECKING:
    import cramjam
    import zstandard

DECOMPRESSED_SIZE_MAX_BYTES = 256 * 1024 * 1024
"""Limit of one batch after decompression. Kafka has none, so that a small request can exhaust its memory."""

_OUTPUT_CHUNK_BYTES = 1024 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_GZIP_WINDOW_BITS = 31
_GZIP_MAGIC = b"\x1f\x8b\x08"
_LZ4_LEVEL_OF_FAST_COMPRESSOR = 9
_LZ4_LEVEL_MIN_HIGH = 3
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS = 0x20
_ZSTD_DEFAULT_LEVEL = 3
_LZ4_OUTPUT_CHUNK_MAX_BYTES = 4 * _OUTPUT_CHUNK_BYTES
_GZIP_INPUT_CHUNK_BYTES = 256 * 1024
_ZSTD_INPUT_CHUNK_BYTES = 256
"""Four bytes of zstd may decompress to 128 KiB: small steps keep the excess over the limit below 8 MiB."""


class Codec(IntEnum):
    """Compression codec: bits 0-2 of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_name(cls, name: str) -> Codec:
        """The codec that clients and `compression.type` call by this name. Raises ValueError."""
        try:
            return _BY_NAME[name]
        except KeyError:
            raise ValueError(f"compression {name!r} is none of {', '.join(_BY_NAME)}") from None


_BY_NAME = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


# A lookup in a tuple is several times cheaper than a call of the enum.
_BY_ID = tuple(Codec)


def codec_of_id(codec_id: int) -> Codec:
    """The codec with this id, which is in bits 0-2 of the batch attributes. Raises `UnsupportedCodec`."""
    try:
        return _BY_ID[codec_id]
    except IndexError:
        raise UnsupportedCodec(f"unknown compression type id {codec_id}") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """Compresses the records of one batch; `level` has the meaning of `compression.<codec>.level`."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_size_bytes: int = DECOMPRESSED_SIZE_MAX_BYTES) -> Buffer:
    """Decompresses the records of one batch. Returns uncompressed data as it is, without a copy."""
    return _DECOMPRESSORS[codec](data, max_size_bytes)


def _identity(data: Buffer, _: int | None) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return stream.compress(data) + stream.flush()


def _compress_snappy(data: Buffer, _: int | None) -> bytes:
    from cramjam import snappy

    parts: list[Buffer | cramjam.Buffer] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # KIP-390: level 9, the default, selects lz4's fast compressor; every other level the high-compression one.
    if level is None or level == _LZ4_LEVEL_OF_FAST_COMPRESSOR:
        frame_level = 0
    else:
        frame_level = max(level, _LZ4_LEVEL_MIN_HIGH)
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=frame_level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    compressor = _per_thread(("zstd", level), lambda: zstandard.ZstdCompressor(level=level))
    compressed: bytes = compressor.compress(data)
    return compressed


def _decompress_gzip(data: Buffer, max_size_bytes: int) -> Buffer:
    output = _BoundedOutput("gzip", max_size_bytes)
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    view = memoryview(data)
    # Decompresses in pieces, because a step copies the input that it did not consume.
    for start in range(0, len(view), _GZIP_INPUT_CHUNK_BYTES):
        rest: Buffer = view[start : start + _GZIP_INPUT_CHUNK_BYTES]
        while rest:
            if stream.eof:
                # As in Java's reader, gzip data may have several members, and bytes that begin none are ignored.
                position = min(start + _GZIP_INPUT_CHUNK_BYTES, len(view)) - len(rest)
                if view[position : position + len(_GZIP_MAGIC)] != _GZIP_MAGIC:
                    return output.joined()
                stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
            try:
                output.add(stream.decompress(rest, _OUTPUT_CHUNK_BYTES))
            except zlib.error as error:
                raise CorruptBatch(f"gzip data is broken: {error}") from None
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
    return _finished(stream, output)


def _finished(stream: zlib._Decompress, output: _BoundedOutput) -> Buffer:
    """Adds the rest that the last step held back because its output was full. Raises if the stream is incomplete."""
    while not stream.eof:
        chunk = stream.decompress(stream.unconsumed_tail, _OUTPUT_CHUNK_BYTES)
        if not chunk:
            raise CorruptBatch("gzip data ends early")
        output.add(chunk)
    return output.joined()


def _decompress_snappy(data: Buffer, max_size_bytes: int) -> Buffer:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        blocks = _xerial_blocks(view)
    else:
        # Some clients write one raw block, without framing.
        blocks = iter((view,))
    output = _BoundedOutput("snappy", max_size_bytes)
    for block in blocks:
        output.add(_decompress_snappy_block(block, output.room_bytes))
    return output.joined()


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """The blocks of one or more concatenated streams. As in Java's reader, a rest shorter than a length is ignored."""
    position = 0
    while (start := position + _BLOCK_LENGTH.size) <= len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise CorruptBatch("snappy data ends inside its header")
            continue
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position = start + length
        if length <= 0 or position > len(view):
            raise CorruptBatch(f"snappy block of {length} bytes does not fit the data")
        yield view[start:position]


def _decompress_snappy_block(block: memoryview, room_bytes: int) -> cramjam.Buffer:
    from cramjam import DecompressionError, snappy

    try:
        claimed = snappy.decompress_raw_len(block)
        if claimed > room_bytes:
            raise BatchTooLarge(f"snappy block claims {claimed} bytes, {room_bytes} are left of the limit")
        return snappy.decompress_raw(block)
    except DecompressionError as error:
        raise CorruptBatch(f"snappy data is broken: {error}") from None


def _decompress_lz4(data: Buffer, max_size_bytes: int) -> Buffer:
    import lz4.frame as frames

    # Not `LZ4FrameDecompressor`: it makes a context for each batch, and copies what it is given.
    context = _per_thread("unlz4", frames.create_decompression_context)
    output: _BoundedOutput | None = None
    chunk_bytes = min(max(_OUTPUT_CHUNK_BYTES, 4 * len(data)), _LZ4_OUTPUT_CHUNK_MAX_BYTES)
    rest, is_end = memoryview(data), False
    chunk: bytes
    try:
        while True:
            chunk, consumed_bytes, is_end = frames.decompress_chunk(context, rest, max_length=chunk_bytes)
            if not chunk and not is_end:
                raise CorruptBatch("lz4 data ends early")
            if output is None:
                if is_end and len(chunk) <= max_size_bytes:
                    return chunk  # as most batches
                output = _BoundedOutput("lz4", max_size_bytes)
            output.add(chunk)
            if is_end:
                return output.joined()
            rest = rest[consumed_bytes:]
    except RuntimeError as error:
        raise CorruptBatch(f"lz4 data is broken: {error}") from None
    finally:
        if not is_end:
            frames.reset_decompression_context(context)


def has_linked_blocks(data: Buffer) -> bool:
    """Whether a block of an LZ4 frame may refer to blocks before it; Java clients cannot read such frames."""
    return (
        len(data) > len(_LZ4_MAGIC)
        and data[: len(_LZ4_MAGIC)] == _LZ4_MAGIC
        and not data[len(_LZ4_MAGIC)] & _LZ4_INDEPENDENT_BLOCKS
    )


def _decompress_zstd(data: Buffer, max_size_bytes: int) -> Buffer:
    import zstandard

    decompressor = _per_thread("unzstd", zstandard.ZstdDecompressor)
    try:
        claimed = zstandard.frame_content_size(data)
        if claimed > max_size_bytes:
            raise BatchTooLarge(f"zstd data claims {claimed} bytes, the limit is {max_size_bytes}")
        if claimed > 0:
            # One frame, as most batches are. The streaming reader takes several, or finds what is wrong.
            with suppress(zstandard.ZstdError):
                plain: bytes = decompressor.decompress(data, allow_extra_data=False)
                return plain
        return _stream_zstd(decompressor, data, max_size_bytes)
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"zstd data is broken: {error}") from None


def _stream_zstd(decompressor: zstandard.ZstdDecompressor, data: Buffer, max_size_bytes: int) -> Buffer:
    """Decompresses several frames, or a frame without a size, which streaming writers such as Java's produce."""
    output = _BoundedOutput("zstd", max_size_bytes)
    view = memoryview(data)
    stream = decompressor.decompressobj()
    for start in range(0, len(view), _ZSTD_INPUT_CHUNK_BYTES):
        rest: Buffer = view[start : start + _ZSTD_INPUT_CHUNK_BYTES]
        while rest:
            if stream.eof:
                stream = decompressor.decompressobj()
            output.add(stream.decompress(rest))
            rest = stream.unused_data if stream.eof else b""
    if not stream.eof:
        raise CorruptBatch("zstd data ends early")
    return output.joined()


class _BoundedOutput:
    """Collects the records of one decompressed batch and raises as soon as they exceed the limit."""

    __slots__ = ("_codec_name", "_max_size_bytes", "_only", "_records", "room_bytes")

    def __init__(self, codec_name: str, max_size_bytes: int) -> None:
        self._codec_name = codec_name
        self._max_size_bytes = max_size_bytes
        # Most batches are one chunk, which is kept as it is. Further chunks extend one buffer: joining a list of
        # chunks would take twice the memory.
        self._only: bytes | None = None
        self._records = bytearray()
        self.room_bytes = max_size_bytes

    def add(self, chunk: Buffer | cramjam.Buffer) -> None:
        """Adds a decompressed chunk. Raises `BatchTooLarge`."""
        self.room_bytes -= len(chunk)
        if self.room_bytes < 0:
            raise BatchTooLarge(f"{self._codec_name} data exceeds {self._max_size_bytes} bytes decompressed")
        if self._only is None and not self._records and isinstance(chunk, bytes):
            self._only = chunk
            return
        if self._only is not None:
            self._records += self._only
            self._only = None
        self._records += chunk

    def joined(self) -> Buffer:
        """All chunks as one buffer."""
        return self._records if self._only is None else self._only


_thread_state = threading.local()
_Context = TypeVar("_Context")


def _per_thread(key: object, make: Callable[[], _Context]) -> _Context:
    """Makes the object once per thread. zstd contexts are costly and must not be shared between threads."""
    contexts: dict[object, _Context] = _thread_state.__dict__.setdefault("contexts", {})
    context = contexts.get(key)
    if context is None:
        context = contexts[key] = make()
    return context


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None], Buffer]] = {
    Codec.NONE: _identity,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: lambda data, _: data,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
