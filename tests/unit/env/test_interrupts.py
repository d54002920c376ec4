"""Signals that wait for a call that runs."""

from __future__ import annotations

import signal

import pytest

from felice.env.interrupts import HeldInterrupts

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
