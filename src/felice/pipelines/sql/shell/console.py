"""The prompt: lines with history and completion, until the user ends the shell.

Keeps true: Ctrl-C ends what runs, or what is being typed, and never the shell. Ctrl-D, `exit` and SIGTERM end it.
            What was typed is in the history, which only its user can read; a line that begins with a space is not.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

from felice import __version__
from felice.pipelines.sql.shell.client import ShellError
from felice.pipelines.sql.shell.completion import KnownNames, suggestions
from felice.pipelines.sql.shell.output import PROMPT
from felice.pipelines.sql.shell.parts import Part, all_parts_of, parts_of
from felice.pipelines.sql.shell.session import Leave, Session
from felice.pipelines.sql.syntax.errors import SqlError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

_MORE = " " * (len(PROMPT) - 2) + "> "
_TERMINATED = 128 + signal.SIGTERM


def history_file() -> Path:
    """The file of what was typed, in the user's directory for such state."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The specification has relative paths ignored.
    folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "felice" / "sql_history"


def run_parts(session: Session, parts: Iterable[Part]) -> bool:
    """Runs statements until one fails; whether none did. Raises `Leave` for `exit`."""
    try:
        for part in parts:
            session.run(part)
    except (ShellError, SqlError) as error:
        session.report(error)
        return False
    return True


def run_script(session: Session, path: Path) -> bool:
    """Runs the statements of a file until one fails; whether none did."""
    try:
        session.run_script(path)
    except ShellError as error:
        session.report(error)
        return False
    except Leave:
        pass
    return True


def run_lines(session: Session, lines: TextIO) -> bool:
    """Runs the statements of a text that is no terminal, each when its line has come; whether none failed.

    As at the prompt, the statements after one that fails are run.
    """
    text, succeeded = "", True
    try:
        for line in lines:
            is_first = not text.strip()
            text = line if is_first else text + line
            if not is_first and ";" not in line:
                continue
            parts, text = parts_of(text)
            for part in parts:
                succeeded &= run_parts(session, [part])
        for part in all_parts_of(text):
            succeeded &= run_parts(session, [part])
    except Leave:
        pass
    return succeeded


def converse(session: Session, history: Path) -> None:
    """Asks for statements and runs them, until the user ends the shell."""
    names = KnownNames(lambda: session.server)
    prompt = _prompt(names, history)
    session.on_change = names.refresh
    session.history = lambda: prompt.history.get_strings()
    session.clear = _clear
    before = signal.signal(signal.SIGTERM, _end)
    try:
        _greet(session)
        names.refresh()
        while True:
            try:
                text = prompt.prompt(PROMPT)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                run_parts(session, all_parts_of(text))
            except KeyboardInterrupt:
                session.output.tell("Query terminated")
            except Leave:
                return
    finally:
        signal.signal(signal.SIGTERM, before)


def _greet(session: Session) -> None:
    info = session.server.info()
    state = f", {info['serverStatus']}" if "serverStatus" in info else ""
    session.output.tell(
        f"Felice {__version__} with the server {info.get('version', '')} at {session.server.url}{state}.\n"
        "Statements end with a semicolon. Type help for the commands of the shell, exit to end it.\n"
    )


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(_TERMINATED)


def _clear() -> None:
    from prompt_toolkit.shortcuts import clear

    clear()


def _prompt(names: KnownNames, history: Path) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.key_binding import KeyBindings

    class Suggesting(Completer):
        def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
            for word, replaced in suggestions(document.text_before_cursor, names.names):
                yield Completion(word, start_position=-replaced)

    def run_or_go_on(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    keys = KeyBindings()
    keys.add("enter")(run_or_go_on)
    return PromptSession(
        multiline=True,
        prompt_continuation=_MORE,
        key_bindings=keys,
        completer=Suggesting(),
        complete_while_typing=False,
        history=_history(history),
    )


def is_complete(text: str) -> bool:
    """Whether what is typed can be run: nothing follows its last statement, or it is empty."""
    return not parts_of(text)[1]


def _history(path: Path) -> FileHistory:
    from prompt_toolkit.history import FileHistory

    class Typed(FileHistory):
        def store_string(self, string: str) -> None:
            if string.startswith(" "):
                return
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
                super().store_string(string)
            except OSError:  # a home without room, or of another user: the shell works without
                pass

    return Typed(str(path))
