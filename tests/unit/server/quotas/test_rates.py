"""Kafka's arithmetic of quotas: windows, throttle times and tokens."""

from __future__ import annotations

import pytest

from felice.server.quotas.rates import Rate, TokenBucket, Window

WINDOW = Window()
BYTES = 1000.0


def recorded(*amounts: tuple[float, float], window: Window = WINDOW) -> Rate:
    rate = Rate(window)
    for now_s, amount in amounts:
        rate.record(amount, now_s)
    return rate


def test_a_burst_at_the_beginning_is_spread_over_ten_seconds() -> None:
    rate = recorded((100.0, 20 * BYTES))
    assert rate.per_second(100.0) == 2 * BYTES
    assert rate.throttle_s(BYTES, 100.0) == 10.0


def test_up_to_ten_seconds_of_allowance_may_be_used_at_once() -> None:
    assert recorded((100.0, 10 * BYTES)).throttle_s(BYTES, 100.0) == 0.0
    assert recorded((100.0, 10 * BYTES + 1)).throttle_s(BYTES, 100.0) > 0.0


def test_a_steady_rate_at_the_limit_is_not_throttled() -> None:
    rate = Rate(WINDOW)
    for second in range(60):
        rate.record(BYTES, 100.0 + second)
        assert rate.throttle_s(BYTES, 100.0 + second) == pytest.approx(0.0, abs=1.2)
    assert rate.per_second(159.0) == pytest.approx(BYTES, rel=0.11)


def test_amounts_are_forgotten_after_all_windows() -> None:
    rate = recorded((100.0, 50 * BYTES))
    assert rate.per_second(110.9) > 0
    assert rate.per_second(111.0) == 0.0
    assert rate.throttle_s(BYTES, 111.0) == 0.0


def test_after_the_wait_the_rate_is_at_its_limit() -> None:
    rate = recorded((100.0, 10 * BYTES), (105.0, 4 * BYTES))
    wait_s = rate.throttle_s(BYTES, 105.0)
    assert wait_s == pytest.approx(4.0)
    assert rate.throttle_s(BYTES, 105.0 + wait_s) == pytest.approx(4.0)  # only new requests are measured
    assert rate.throttle_s(BYTES, 111.0) == 0.0


def test_what_was_taken_back_does_not_count() -> None:
    assert recorded((100.0, 30 * BYTES), (100.1, -30 * BYTES)).throttle_s(BYTES, 100.1) == 0.0


def test_records_within_one_window_share_a_sample() -> None:
    rate = recorded((100.0, 1.0), (100.5, 2.0), (101.0, 4.0))
    assert list(rate._samples) == [[100.0, 3.0], [101.0, 4.0]]


def test_a_limit_of_zero_waits_for_all_windows() -> None:
    assert recorded((100.0, 1.0)).throttle_s(0.0, 100.0) == 11.0
    assert recorded().throttle_s(0.0, 100.0) == 0.0


def test_a_new_bucket_is_full_and_may_be_overdrawn() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(10, rate=1.0, now_s=100.0)
    assert bucket.throttle_s(1.0, 100.0) == 0.0  # a token is left
    bucket.take(5, rate=1.0, now_s=100.0)
    assert bucket.throttle_s(1.0, 100.0) == 4.0
    assert bucket.throttle_s(1.0, 102.0) == 2.0
    assert bucket.throttle_s(1.0, 104.0) == 0.0


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(1, rate=1.0, now_s=100.0)
    assert bucket.tokens(1.0, 10_000.0) == 11.0


def test_a_rate_of_zero_never_pays_a_debt() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(1, rate=0.0, now_s=100.0)
    assert bucket.throttle_s(0.0, 1000.0) == 11.0
