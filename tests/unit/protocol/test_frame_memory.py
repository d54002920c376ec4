"""Frame memory is reused, but never while a view of it exists."""

import pytest

from felice.protocol.frame_memory import FrameMemory

KIB, MIB = 1024, 1024 * 1024


def pooled() -> FrameMemory:
    return FrameMemory(pool_bytes=4 * MIB, map_from_bytes=MIB)


@pytest.mark.parametrize("size", [1, 70 * KIB, 128 * KIB, MIB - 1, MIB, 2 * MIB, 2 * MIB + 1, 9 * MIB])
@pytest.mark.parametrize("memory", [pooled(), FrameMemory()], ids=["pooled", "plain"])
def test_memory_has_the_size_asked_for_and_can_be_written(memory: FrameMemory, size: int) -> None:
    taken = memory.take(size)
    assert taken.nbytes == size
    taken[-1:] = b"x"


def test_memory_without_views_is_reused() -> None:
    memory = pooled()
    first = memory.take(900 * KIB)
    buffer = first.obj
    del first
    assert memory.take(1000 * KIB).obj is buffer


def test_memory_with_a_view_is_not_reused() -> None:
    memory = pooled()
    frame = memory.take(900 * KIB)
    frame[:] = b"a" * len(frame)
    records = frame[100:200]
    del frame  # a handler keeps only the records
    for _ in range(3):
        other = memory.take(900 * KIB)
        other[:] = b"b" * len(other)
    assert bytes(records) == b"a" * 100


def test_the_pool_is_bounded() -> None:
    memory = pooled()
    held = [memory.take(MIB) for _ in range(10)]
    buffers = {id(frame.obj) for frame in held}
    assert len(buffers) == 10
    del held
    again = [memory.take(MIB) for _ in range(10)]
    assert sum(isinstance(frame.obj, bytearray) for frame in again) == 4


def test_memory_too_small_makes_room_for_larger() -> None:
    memory = pooled()
    held = [memory.take(MIB) for _ in range(4)]
    del held
    assert isinstance(memory.take(2 * MIB).obj, bytearray)


def test_memory_is_given_back_after_a_while_of_disuse() -> None:
    memory = pooled()
    buffer = memory.take(MIB).obj
    memory.forget_unused()
    assert memory.take(MIB).obj is buffer
    memory.forget_unused()
    memory.forget_unused()
    assert memory.take(MIB).obj is not buffer
