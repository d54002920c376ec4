from types import SimpleNamespace

from felice.client.net.traffic import BrokerTraffic, Window


def test_window_describes_one_interval_and_starts_again() -> None:
    window = Window()
    for sample in range(1, 101):
        window.add(sample)
    found = window.take()
    assert (found["min"], found["max"], found["avg"], found["sum"], found["cnt"]) == (1, 100, 50, 5050, 100)
    assert (found["p50"], found["p99"], found["stddev"]) == (51, 100, 28)
    assert set(window.take().values()) == {0}


def test_window_keeps_a_bounded_sample_of_all_values() -> None:
    window = Window()
    for sample in range(20 * Window.LIMIT):
        window.add(sample)
    assert len(window._samples) == Window.LIMIT
    found = window.take()
    assert found["cnt"] == 20 * Window.LIMIT and found["avg"] == 10 * Window.LIMIT - 1
    # Late samples are in it as well as early ones.
    assert abs(found["p50"] - 10 * Window.LIMIT) < 2 * Window.LIMIT


def test_throttling_is_reported_while_it_lasts_and_once_when_it_ends() -> None:
    told: list[tuple[str, int]] = []
    traffic = BrokerTraffic("h:1", lambda address, delay_ms: told.append((address, delay_ms)))
    for delay_ms in (0, 5, 7, 0, 0):
        traffic.on_reply(SimpleNamespace(throttle_time_ms=delay_ms), 0.001)
    assert told == [("h:1", 5), ("h:1", 7), ("h:1", 0)]
    assert traffic.replies == 5 and traffic.throttle_ms.take()["max"] == 7


def test_reply_without_a_throttle_time_counts_as_unthrottled() -> None:
    traffic = BrokerTraffic("h:1", lambda address, delay_ms: None)
    traffic.on_reply(object(), 0.25)
    assert traffic.round_trips_us.take()["avg"] == 250_000
