"""Signals that wait for a call that runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from felice.env.interrupts import HeldInterrupts, children_ignore_sigterm, handled_by

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


def test_a_second_interrupt_is_handled_as_the_caller_says() -> None:
    heard: list[int] = []
    with HeldInterrupts(again=lambda number, frame: heard.append(number)) as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert heard == []
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM] and interrupts.came()


@each_signal
def test_a_handler_counts_in_its_block(number: signal.Signals) -> None:
    before, heard = signal.getsignal(number), []
    with handled_by(lambda number, frame: heard.append(number)):
        signal.raise_signal(number)
    assert heard == [number]
    assert signal.getsignal(number) is before


END_AT_ONCE = """
import atexit, signal, sys
from felice.env.interrupts import end_at_once, handled_by
atexit.register(print, "cleaned up")
with handled_by(end_at_once):
    signal.raise_signal(int(sys.argv[1]))
print("not reached")
"""


@each_signal
def test_a_process_that_ends_at_once_cleans_nothing_up(number: signal.Signals) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", END_AT_ONCE, str(number.value)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "\nAborted!\n")


def test_a_process_whose_error_output_nobody_reads_ends_at_once() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", END_AT_ONCE, str(signal.SIGTERM.value)]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=write).returncode == 130
    os.close(write)


SET_A_HANDLER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
sys.stdin.read()
"""


def child_of(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: None
    )


def test_a_process_that_ignores_sigterm_ends_with_its_input() -> None:
    with children_ignore_sigterm():
        child = child_of(sys.executable, "-c", SET_A_HANDLER)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.terminate()
        child.communicate(timeout=60)
    assert child.returncode == 0


def test_java_is_told_to_leave_the_signal_alone() -> None:
    """A shell, too, cannot take a signal that was ignored when it started; it says so by listing no trap for it."""
    script = "trap 'echo handled' TERM; kill -TERM $$; grep SigIgn /proc/$$/status"
    with children_ignore_sigterm():
        told, _ = child_of("bash", "-c", script).communicate(timeout=60)
    assert int(told.split()[-1], 16) & 1 << signal.SIGTERM - 1
    told, _ = child_of("bash", "-c", script).communicate(timeout=60)
    assert told.splitlines()[0] == "handled"


def test_a_sigterm_while_a_process_starts_is_not_lost() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with children_ignore_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
