import zlib

import pytest

from felice.client.options import PARTITIONER_NAMES
from felice.client.produce.partitioners import PARTITIONERS, make_partitioner

# Java's Utils.murmur2 of these strings, from Kafka's own UtilsTest.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA_MURMUR2)
def test_murmur2_puts_keys_where_java_does(key: bytes) -> None:
    expected = (JAVA_MURMUR2[key] & 0x7FFFFFFF) % 12
    assert make_partitioner("murmur2")(key, 12) == expected
    assert make_partitioner("murmur2_random")(key, 12) == expected


def test_consistent_is_crc32() -> None:
    assert make_partitioner("consistent")(b"key", 7) == zlib.crc32(b"key") % 7
    assert make_partitioner("consistent")(None, 7) == 0
    assert make_partitioner("consistent_random")(b"key", 7) == zlib.crc32(b"key") % 7
    assert make_partitioner("consistent_random")(b"", 7) is None


def test_random_ones_have_no_opinion_without_a_key() -> None:
    for name in ("murmur2_random", "consistent_random", "fnv1a_random", "sticky"):
        assert make_partitioner(name)(None, 3) is None, name


def test_every_partitioner_stays_in_range() -> None:
    for name in PARTITIONERS:
        partitioner = make_partitioner(name)
        for key in (None, b"", b"a", b"key" * 20):
            assert (partitioner(key, 5) or 0) in range(5), name


def test_round_robin_takes_turns_per_producer() -> None:
    one, other = make_partitioner("round_robin"), make_partitioner("round_robin")
    assert [one(b"k", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert other(b"k", 3) == 0


def test_custom_partitioner_is_used_as_it_is() -> None:
    assert make_partitioner(lambda key, count: count - 1)(b"k", 4) == 3


def test_the_names_that_the_options_accept_are_the_partitioners() -> None:
    assert tuple(PARTITIONERS) == PARTITIONER_NAMES
