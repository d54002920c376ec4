import threading
import time

from felice.client.net.wakeup import Wakeup


def test_a_wait_ends_when_it_is_set() -> None:
    wakeup = Wakeup()
    timer = threading.Timer(0.05, wakeup.set)
    begun = time.monotonic()
    timer.start()
    wakeup.wait(60.0)
    assert time.monotonic() - begun < 50
    timer.join()


def test_a_set_before_the_wait_is_not_lost_and_counts_once() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    begun = time.monotonic()
    wakeup.wait(60.0)
    assert time.monotonic() - begun < 50
    begun = time.monotonic()
    wakeup.wait(0.05)
    assert time.monotonic() - begun >= 0.04
