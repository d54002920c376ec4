"""The task's side of the link to its worker: follows what the worker wishes, and asks it for offsets.

Keeps true:  the task ends when the link does: a task whose worker is gone has no owner.
             An answer belongs to its question: a question that got none raises `ConnectError`.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from typing import Any

from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.tasks import TaskState
from felice.pipelines.connect.runtime.messages import (
    END,
    HEAD,
    LINES,
    PAUSE,
    PROGRESS,
    READ,
    RESUME,
    STATE,
    STOP,
    TOPIC,
    WRITE,
    Message,
    Ticket,
    frame_of,
    length_of,
    proof,
)
from felice.pipelines.connect.storage.json_records import decoded
from felice.pipelines.connect.task.control import Control

CONNECT_S = 10.0


class TaskLink:
    """A connection to the worker. It is an `OffsetStore`, too: the worker keeps the offsets of this connector."""

    def __init__(self, ticket: Ticket, control: Control, timeout_s: float = 60.0) -> None:
        """Connects. `timeout_s` limits the wait for each answer. Raises `ConnectError`."""
        self._control = control
        self._timeout_s = timeout_s
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._answers: dict[int, Message] = {}
        self._is_open = True
        self._sending = threading.Lock()
        try:
            self._socket = socket.create_connection((ticket.host, ticket.port), CONNECT_S)
            self._input = self._socket.makefile("rb")
            challenge = self._receive()["challenge"]
            self._send({"number": ticket.number, "proof": proof(ticket.key, challenge)})
            self._socket.settimeout(None)
        except (OSError, KeyError, DataError) as error:
            raise ConnectError(f"cannot reach the worker at {ticket.host}:{ticket.port}: {error}") from error
        self._thread = threading.Thread(target=self._listen, name="felice-connect-link", daemon=True)
        self._thread.start()

    def tell_state(self, state: TaskState) -> None:
        """Tells the worker what the task is doing."""
        self._send({STATE: state.value})

    def tell_topic(self, topic: str) -> None:
        """Tells the worker that the task uses a topic."""
        self._send({TOPIC: topic})

    def tell_progress(self, progress: Message) -> None:
        """Tells the worker what the task has done."""
        self._send({PROGRESS: progress})

    def tell_lines(self, lines: Sequence[str]) -> None:
        """Tells the worker lines of the task's log."""
        if lines:
            self._send({LINES: list(lines)})

    def end(self, trace: str | None) -> None:
        """Tells the worker that the task has ended, with the trace of its error, and closes the link."""
        try:
            self._send({END: trace})
        except ConnectError:
            pass  # the worker is gone; it cannot be told
        finally:
            self._is_open = False
            # Ends the thread's wait for a line.
            self._close_socket()
            self._thread.join()

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        """The committed offsets, or None. Raises `ConnectError`."""
        found: list[Place | None] = self._ask({READ: [dict(one) for one in partitions]})
        return found

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        """Commits offsets. Raises `ConnectError`."""
        self._ask({WRITE: [[dict(place), None if at is None else dict(at)] for place, at in offsets]})

    def _ask(self, message: Message) -> Any:
        number = next(self._numbers)
        self._send(message | {"question": number})
        with self._changed:
            self._changed.wait_for(lambda: number in self._answers or not self._is_open, self._timeout_s)
            answer = self._answers.pop(number, None)
        if answer is None:
            why = f"did not answer in {self._timeout_s:g} s" if self._is_open else "closed the link"
            raise ConnectError(f"the worker {why}")
        if "error" in answer:
            raise ConnectError(answer["error"])
        return answer["answer"]

    def _send(self, message: Message) -> None:
        try:
            with self._sending:
                self._socket.sendall(frame_of(message))
        except OSError as error:
            raise ConnectError(f"the link to the worker broke: {error}") from error

    def _listen(self) -> None:
        try:
            while True:
                self._follow(self._receive())
        except (OSError, ConnectError, ValueError):
            pass  # the link has ended, which is handled below
        finally:
            with self._changed:
                self._is_open = False
                self._changed.notify_all()
            self._control.stop()
            self._close_socket()

    def _receive(self) -> Message:
        head = self._input.read(HEAD.size)
        if len(head) < HEAD.size:
            raise ConnectionError("the worker closed the link")
        length = length_of(head)
        data = self._input.read(length)
        if len(data) < length:
            raise ConnectionError("the worker closed the link")
        return decoded(data)

    def _follow(self, message: Message) -> None:
        wish = message.get("wish")
        if wish == PAUSE:
            self._control.pause()
        elif wish == RESUME:
            self._control.resume()
        elif wish == STOP:
            self._control.stop()
        elif "question" in message:
            with self._changed:
                self._answers[message["question"]] = message
                self._changed.notify_all()

    def _close_socket(self) -> None:
        with contextlib.suppress(OSError):  # the other side may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._input.close()
        self._socket.close()
