"""Signals that wait for a call that runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from felice.env.interrupts import HeldInterrupts, starting_deaf_to_sigterm

each_signal = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@each_signal
def test_an_interrupt_waits_for_the_call_that_runs(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    calls = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(number)
        calls.append("finished")
        interrupts.check()
        calls.append("not reached")
    assert calls == ["finished"]
    assert signal.getsignal(number) is before


@each_signal
def test_an_interrupt_without_a_check_is_raised_at_the_end(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), HeldInterrupts():
        signal.raise_signal(number)


def test_an_interrupt_that_was_told_is_not_raised() -> None:
    with HeldInterrupts() as interrupts:
        assert not interrupts.came()
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.came() and interrupts.came()
        interrupts.check()


@each_signal
def test_a_second_interrupt_does_not_wait(number: signal.Signals) -> None:
    calls = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(number)
        calls.append("not reached")
    assert calls == []


SET_A_HANDLER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_that_starts_deaf_ends_with_its_input_and_not_by_sigterm() -> None:
    with starting_deaf_to_sigterm():
        child = subprocess.Popen(
            [sys.executable, "-c", SET_A_HANDLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.terminate()
        child.communicate(timeout=60)
    assert child.returncode == 0


def test_a_sigterm_while_a_process_starts_is_not_lost() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with starting_deaf_to_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == []
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_may_start_processes_too() -> None:
    """Only the main thread may change what a signal does."""
    entered: list[bool] = []

    def start() -> None:
        with starting_deaf_to_sigterm():
            entered.append(True)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert entered == [True]
