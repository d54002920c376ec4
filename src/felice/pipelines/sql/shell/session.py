"""What statements and commands do: variables, properties and scripts stay here, the rest goes to the server.

Keeps true: a statement has the properties and variables that the statements before it left. A statement waits for the
            commands before it. A script ends at its first error, which says file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from felice import __version__
from felice.pipelines.sql.shell.client import Entity, Refused, Server, ShellError
from felice.pipelines.sql.shell.output import JSON, TABULAR, Output
from felice.pipelines.sql.shell.parts import COMMANDS, Broken, Command, Part, Sql, all_parts_of
from felice.pipelines.sql.shell.printing import text_of
from felice.pipelines.sql.shell.streaming import Lines, Rows, Stream, interruptible
from felice.pipelines.sql.syntax.errors import SqlError, SqlSyntaxError
from felice.pipelines.sql.syntax.scripts import define, with_values
from felice.pipelines.sql.syntax.statements import statement_of
from felice.pipelines.sql.syntax.tree import Define, SetProperty, Statement

T = TypeVar("T", bound=Statement)

DEEPEST_SCRIPT = 16
_CHANGES = ("currentStatus", "connector_info", "drop_connector")
"""Results after which the server has other names than before."""
_SUBSTITUTES = "ksql.variable.substitution.enable"


class Leave(Exception):
    """The user ends the shell."""


class Session:
    """A user's work with a server."""

    def __init__(
        self,
        server: Server,
        output: Output,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        *,
        row_limit: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Queries end after so many rows, or so many seconds."""
        self.server, self.output = server, output
        self.properties, self.variables = dict(properties or {}), dict(variables or {})
        self.row_limit, self.timeout_s = row_limit, timeout_s
        self.connect: Callable[[str], Server] = Server
        """How another server is reached."""
        self.history: Callable[[], Iterable[str]] = tuple
        self.clear: Callable[[], None] = lambda: None
        self.on_change: Callable[[], None] = lambda: None
        """Called when streams, tables or types may be others."""
        self._column_width, self._wraps = 0, True
        self._last_command: int | None = None
        self._depth = 0

    def run(self, part: Part) -> None:
        """Runs a statement or command. Raises `ShellError` or `SqlError` if it fails, and `Leave` for `exit`."""
        self.output.spool_statement(f"{part.text};" if isinstance(part, Sql) else part.text)
        if isinstance(part, Broken):
            raise part.error
        if isinstance(part, Command):
            _COMMANDS[part.name](self, self._with_values(part.argument, part))
        else:
            self._statement(part)

    def run_script(self, path: Path) -> None:
        """Runs the statements of a file. Raises as `run`."""
        if self._depth == DEEPEST_SCRIPT:
            raise ShellError(f"{path}: scripts run each other {DEEPEST_SCRIPT} deep")
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise ShellError(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ShellError(f"{path} is not text in UTF-8") from None
        self._depth += 1
        try:
            for part in all_parts_of(text):
                self._run_in(path, part)
        finally:
            self._depth -= 1

    def _run_in(self, path: Path, part: Part) -> None:
        try:
            self.run(part)
        except SqlError as error:
            raise ShellError(f"{path}, {error}") from error
        except ShellError as error:
            raise ShellError(f"{path}, line {part.position.line}: {error}") from error

    def report(self, error: ShellError | SqlError) -> None:
        """Shows an error; in JSON also as the server sent it."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, Refused):
            cause = cause.__cause__
        if isinstance(cause, Refused):
            self._show(cause.results)
            if self.output.is_json and "@type" in cause.entity:
                self.output.show_json(cause.entity)
        self.output.complain(f"error: {error}")

    # Statements

    def _statement(self, part: Sql) -> None:
        text = self._with_values(part.text, part)
        for words, run in _LOCAL.items():
            if part.begins(*words):
                run(self, text, part)
                return
        if part.begins("SELECT") or part.begins("PRINT"):
            self._query(text, part)
            return
        found = self.server.run(text, self.properties, self._last_command)
        failed = [one for one in found if one.get("@type") == "error_entity"]
        self._show([one for one in found if self.output.is_json or one not in failed])
        numbers = [one.get("commandSequenceNumber") for one in found]
        self._last_command = max(
            (number for number in numbers if isinstance(number, int) and number >= 0),
            default=self._last_command,
        )
        if any(one.get("@type") in _CHANGES for one in found):
            self.on_change()
        if failed:
            raise ShellError(str(failed[0].get("errorMessage")))

    def _with_values(self, text: str, part: Part) -> str:
        if self.properties.get(_SUBSTITUTES, "true").lower() == "false":
            return text
        return with_values(text, self.variables, part.position)

    def _show(self, entities: Sequence[Entity]) -> None:
        if not entities:
            return
        if self.output.is_json:
            self.output.show_json(entities)
            return
        for entity in entities:
            self.output.show(text_of(entity, self.output.width))

    def _set(self, text: str, part: Sql) -> None:
        setting = _parsed(text, part, SetProperty)
        if setting.value is None:
            before = self.properties.pop(setting.name, None)
            if before is None:
                raise ShellError(f"the property {setting.name} is not set in this session")
            self.output.tell(f"Successfully unset local property '{setting.name}' (value was '{before}').")
            return
        if refusal := self.server.refusal_of_property(setting.name):
            raise ShellError(refusal)
        before = self.properties.get(setting.name)
        self.properties[setting.name] = setting.value
        was = "" if before is None else f" from '{before}'"
        self.output.tell(
            f"Successfully changed local property '{setting.name}'{was} to '{setting.value}'. "
            "Use the UNSET command to revert your change."
        )

    def _define(self, text: str, part: Sql) -> None:
        variable = _parsed(text, part, Define)
        if not define(variable, self.variables) and variable.value is None:
            raise ShellError(f"the variable {variable.name} is not defined")

    def _show_variables(self, text: str, part: Sql) -> None:
        rows = [{"name": name, "value": value} for name, value in sorted(self.variables.items())]
        self._show([{"@type": "variables", "statementText": f"{text};", "variables": rows, "warnings": []}])

    # Queries

    def _query(self, text: str, part: Sql) -> None:
        printed = part.begins("PRINT")
        if self.output.width is not None and (printed or any(one.is_word("EMIT") for one in part.tokens)):
            self.output.tell("Press CTRL-C to interrupt")
        shown: Stream = Lines(self.output) if printed else Rows(self.output, self._column_width, self._wraps)
        with (
            interruptible(self.timeout_s),
            self.server.query(text, self.properties, self._last_command) as lines,
        ):
            for line in lines:
                shown.show(line, self.row_limit)
                if self.row_limit is not None and shown.rows >= self.row_limit:
                    break
        self.output.tell("Query terminated")

    # Commands of the shell

    def _leave(self, argument: str) -> None:
        raise Leave

    def _help(self, argument: str) -> None:
        width = max(map(len, COMMANDS))
        lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
        self.output.tell("\n".join((_HELP, *lines)))

    def _clear(self, argument: str) -> None:
        self.clear()

    def _history(self, argument: str) -> None:
        for number, text in enumerate(self.history(), 1):
            self.output.tell(f"{number:5}  {text}")

    def _version(self, argument: str) -> None:
        self.output.tell(f"Felice {__version__}; server {self.server.info().get('version', 'unknown')}")

    def _server(self, argument: str) -> None:
        if argument:
            server = self.connect(_unquoted(argument))
            try:
                server.info()
            except ShellError:
                server.close()
                raise
            self.server.close()
            self.server, self._last_command = server, None
            self.on_change()
        self.output.tell(f"Server: {self.server.url}")

    def _output(self, argument: str) -> None:
        form = _unquoted(argument).upper()
        if form not in ("", TABULAR, JSON):
            raise ShellError(f"there is no output {argument}; there are {TABULAR} and {JSON}")
        self.output.form = form or self.output.form
        self.output.tell(f"Output format: {self.output.form}")

    def _spool(self, argument: str) -> None:
        if not argument:
            raise ShellError("expected spool 'FILE', or spool off")
        if argument.upper() != "OFF":
            path = Path(_unquoted(argument)).expanduser()
            self.output.spool_to(path)
            self.output.tell(f"Session will be spooled to {path.absolute()}")
        elif not self.output.end_spool():
            raise ShellError("there is no spool to end")

    def _script(self, argument: str) -> None:
        if not argument:
            raise ShellError("expected run script 'FILE'")
        self.run_script(Path(_unquoted(argument)).expanduser())

    def _set_cli(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        value = _unquoted(value.strip().lstrip("=").strip())
        if name.upper() == "COLUMN-WIDTH" and value.isdecimal():
            self._column_width = int(value)
        elif name.upper() == "WRAP" and value.upper() in ("ON", "OFF"):
            self._wraps = value.upper() == "ON"
        else:
            raise ShellError("expected set cli COLUMN-WIDTH n, set cli WRAP ON or set cli WRAP OFF")


_LOCAL: Mapping[tuple[str, ...], Callable[[Session, str, Sql], None]] = {
    ("SET",): Session._set,
    ("UNSET",): Session._set,
    ("DEFINE",): Session._define,
    ("UNDEFINE",): Session._define,
    ("SHOW", "VARIABLES"): Session._show_variables,
    ("LIST", "VARIABLES"): Session._show_variables,
}
_COMMANDS: Mapping[str, Callable[[Session, str], None]] = {
    "exit": Session._leave,
    "quit": Session._leave,
    "help": Session._help,
    "clear": Session._clear,
    "history": Session._history,
    "version": Session._version,
    "server": Session._server,
    "output": Session._output,
    "spool": Session._spool,
    "run script": Session._script,
    "set cli": Session._set_cli,
}
_HELP = """Statements end with a semicolon and may have several lines, such as:

  SHOW STREAMS;  DESCRIBE name;  EXPLAIN query;  SHOW FUNCTIONS;
  SELECT * FROM name EMIT CHANGES LIMIT 5;   Ctrl-C ends a query
  PRINT 'topic' FROM BEGINNING LIMIT 5;
  SET 'auto.offset.reset' = 'earliest';      for the statements of this session
  DEFINE name = 'text';                      ${name} stands for it

Commands of the shell end with their line:
"""


def _parsed(text: str, part: Sql, kind: type[T]) -> T:
    found = statement_of(text, part.position)
    if not isinstance(found, kind):
        raise SqlSyntaxError(f"expected {kind.__name__}", part.position)
    return found


def _unquoted(text: str) -> str:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if is_quoted else text
