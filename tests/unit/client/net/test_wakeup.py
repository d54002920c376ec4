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


def test_each_of_several_waits_ends_at_its_limit() -> None:
    wakeup = Wakeup()
    is_over = threading.Event()

    def wait_often() -> None:
        while not is_over.is_set():
            wakeup.wait(0.0005)

    threads = [threading.Thread(target=wait_often, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(20_000):
        wakeup.set()
    is_over.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
