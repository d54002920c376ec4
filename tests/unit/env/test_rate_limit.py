"""The rate limit: how often a key is allowed, and how many keys are remembered."""

from __future__ import annotations

from felice.env.clock import RateLimit


def test_each_key_is_allowed_once_in_the_interval() -> None:
    now = [0.0]
    limit = RateLimit(lambda: now[0], 60)
    assert [limit.allows(key) for key in ("a", "a", "b")] == [True, False, True]
    now[0] = 59.9
    assert not limit.allows("a")
    now[0] = 60.0
    assert limit.allows("a")
    assert limit.refused == 2
    assert not limit.allows("a")
    assert limit.allows("b")
    assert limit.refused == 0


def test_the_oldest_of_many_keys_are_forgotten() -> None:
    limit = RateLimit(lambda: 0.0, 60)
    for key in range(5_000):
        assert limit.allows(key)
    assert len(limit._last) == 1_000
    assert not limit.allows(4_999)
