"""`felice sql` beside a server that answers what the test says: statements of an option, a file, or standard input."""

from __future__ import annotations

import json
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from felice import __version__
from felice.cli.main import felice
from felice.pipelines.sql.shell.client import DEFAULT_URL, MAX_LINE_BYTES, Server, ShellError
from felice.pipelines.sql.shell.output import Output
from sql_server import ENDLESS, FakeServer, rows, serving, status

FAILED = 255
NO_ADDRESS = f"expected the address of a server with http:// or https://, such as {DEFAULT_URL}"
MISSING = {
    "@type": "statement_error",
    "error_code": 40001,
    "message": "X does not exist.",
    "statementText": "DESCRIBE X;",
    "entities": status("Stream created"),
}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as found:
        yield found


def shell(server: FakeServer | str, *words: str, typed: str | None = None) -> Result:
    url = server if isinstance(server, str) else server.url
    return CliRunner().invoke(felice, ["sql", url, *words], input=typed, catch_exceptions=False)


def ran(server: FakeServer, statements: str, *words: str) -> str:
    """What statements print, none of which may fail."""
    found = shell(server, *words, "-e", statements)
    assert (found.exit_code, found.stderr) == (0, ""), found.output
    return found.stdout


def test_a_worker_that_fails_is_an_error(server: FakeServer) -> None:
    """ksqlDB answers SHOW CONNECTORS with an entity then, and no error."""
    server.answers["SHOW CONNECTORS"] = [{"@type": "error_entity", "errorMessage": "no worker"}]
    found = shell(server, "-e", "SHOW CONNECTORS; SHOW TYPES;")
    assert (found.exit_code, found.stdout) == (FAILED, "")
    assert found.stderr == "error: no worker\n"
    assert server.statements == ["SHOW CONNECTORS;"]


def test_the_case_of_a_variables_name_does_not_matter(server: FakeServer) -> None:
    ran(
        server,
        "DEFINE Name = 'a'; DEFINE NAME = 'b'; SHOW ${name}; UNDEFINE name; DEFINE x = 'c'; SHOW ${X};",
    )
    assert server.statements == ["SHOW b;", "SHOW c;"]
    found = shell(server, "-e", "DEFINE Name = 'a'; UNDEFINE NAME; SHOW ${Name};")
    assert (found.exit_code, "the variable Name is not defined" in found.stderr) == (FAILED, True)


def test_each_statement_is_a_request(server: FakeServer) -> None:
    server.answers["CREATE STREAM s (a INT)"] = status("Stream created")
    assert ran(server, "CREATE STREAM s (a INT);\nDROP STREAM s").splitlines() == [
        "",
        " Message",
        "----------------",
        " Stream created",
        "----------------",
    ]
    assert server.statements == ["CREATE STREAM s (a INT);", "DROP STREAM s;"]
    assert {request["path"] for request in server.requests} == {"/ksql"}


def test_a_statement_waits_for_the_commands_before_it(server: FakeServer) -> None:
    server.answers.update({"a": status("", 7), "b": status("", -1), "SELECT 1": rows()})
    ran(server, "a; b; c; SELECT 1;")
    assert [request.get("commandSequenceNumber") for request in server.requests] == [None, 7, 7, 7]


def test_an_error_ends_the_statements_with_the_status_of_ksqldbs_shell(server: FakeServer) -> None:
    """What the server did before the error is shown."""
    server.answers["DESCRIBE X"] = MISSING
    found = shell(server, "-e", "DESCRIBE X; SHOW STREAMS;")
    assert (found.exit_code, found.stderr) == (FAILED, "error: X does not exist.\n")
    assert "Stream created" in found.stdout
    assert server.statements == ["DESCRIBE X;"]


def test_a_text_that_is_no_statement_fails_here(server: FakeServer) -> None:
    found = shell(server, "-e", "SHOW ~;")
    assert (found.exit_code, found.stderr) == (
        FAILED,
        "error: line 1:6: the character '~' has no meaning here\n",
    )
    assert server.requests == []


def test_results_in_json(server: FakeServer) -> None:
    server.answers.update(
        {"a": status("done"), "b": MISSING, "SELECT 1": rows(["k", [1.10]], end="Limit Reached")}
    )
    found = shell(server, "--output", "json", "-e", "a; SELECT 1; PRINT t; b;")
    decoder, text, values = json.JSONDecoder(), found.stdout.strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].lstrip()
    assert values[0] == status("done")
    assert [next(iter(value)) for value in values[1:4]] == ["header", "row", "finalMessage"]
    assert values[4:] == [MISSING["entities"], MISSING]
    assert found.stderr == "Query terminated\nQuery terminated\nerror: X does not exist.\n"
    assert found.exit_code == FAILED


def test_output_is_also_a_command(server: FakeServer) -> None:
    server.answers["a"] = status("done")
    found = shell(server, "-e", "output JSON\na; output 'tabular'; output; output xml;")
    assert json.loads(found.stdout.partition("]\nOutput")[0] + "]") == status("done")
    assert found.stderr == (
        "Output format: JSON\nerror: there is no output xml; there are TABULAR and JSON\n"
    )
    assert found.stdout.endswith("]\nOutput format: TABULAR\nOutput format: TABULAR\n")


# Queries


def test_rows_of_a_query(server: FakeServer) -> None:
    server.answers["SELECT * FROM s"] = rows(
        ["a", [1, 2]], [None, None], {"row": {"columns": ["b", None], "tombstone": True}}, end="Limit Reached"
    )
    assert ran(server, "SELECT * FROM s;").splitlines() == [
        "+----------------+----------------+",
        "|ID              |TAGS            |",
        "+----------------+----------------+",
        "|a               |[1, 2]          |",
        "|null            |null            |",
        "|b               |<TOMBSTONE>     |",
        "Limit Reached",
        "Query terminated",
    ]
    assert server.requests[0]["path"] == "/query"


def test_a_row_may_have_line_separators_and_controls(server: FakeServer) -> None:
    """JSON allows the first as they are; the second must not reach a terminal."""
    line = '{"row": {"columns": ["a\u2028b", "\\u001b[2J\\n", 1.10, {"A": [true, null]}]}}'
    server.answers["SELECT 1"] = [
        *rows(schema="`A` STRING, `B` STRING, `C` DECIMAL(3, 2), `D` STRUCT<`A` BOOLEAN>"),
        line,
    ]
    printed = ran(server, "SELECT 1;")
    assert "|1.10 " in printed and "|{A=[true, null]}|" in printed
    assert "|\\u001b[2J\\n " in printed


def test_columns_have_the_width_that_the_user_sets(server: FakeServer) -> None:
    server.answers["SELECT 1"] = rows(["abcdefghijkl", [1]])
    wrapped = ran(server, "set cli COLUMN-WIDTH 6; SELECT 1;").splitlines()
    assert wrapped[3:5] == ["|abcdef|[1]   |", "|ghijkl|      |"]
    cut = ran(server, "SET CLI COLUMN-WIDTH 6; SET CLI WRAP OFF; SELECT 1;").splitlines()
    assert cut[3:5] == ["|abc...|[1]   |", "Query terminated"]
    found = shell(server, "-e", "set cli COLUMN-WIDTH x;")
    assert found.stderr.startswith("error: expected set cli COLUMN-WIDTH n")


def test_print_shows_lines_as_they_are(server: FakeServer) -> None:
    lines = [
        "Key format: ¯\\_(ツ)_/¯",
        "rowtime: 1, key: a",
        "rowtime: 2, key: b",
        "rowtime: 3, key: c",
        ENDLESS,
    ]
    server.answers["PRINT t FROM BEGINNING"] = lines
    printed = ran(server, "PRINT t FROM BEGINNING;", "--query-row-limit", "2")
    assert printed.splitlines() == [*lines[:3], "Query terminated"]
    assert server.query_ended.wait(60)


def test_a_query_ends_after_so_many_rows(server: FakeServer) -> None:
    server.answers["SELECT 1 EMIT CHANGES"] = [*rows(["a", []], ["b", []]), ENDLESS]
    printed = ran(server, "SELECT 1 EMIT CHANGES;", "--query-row-limit", "1")
    assert printed.splitlines()[3:] == ["|a               |[]              |", "Query terminated"]
    assert server.query_ended.wait(60)


def test_a_line_may_have_several_rows(server: FakeServer) -> None:
    """A server need not put each in a line of its own."""
    server.answers["SELECT 1"] = ["".join(rows(["a", []], ["b", []], ["c", []], end="Limit Reached"))]
    assert [line[:2] for line in ran(server, "SELECT 1;").splitlines()[3:6]] == ["|a", "|b", "|c"]
    limited = ran(server, "SELECT 1;", "--query-row-limit", "2", "--query-timeout", "60000")
    assert [line[:2] for line in limited.splitlines()[3:]] == ["|a", "|b", "Qu"]
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_query_may_be_silent(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines come uncompressed, each when it is there."""
    monkeypatch.setattr("felice.pipelines.sql.shell.client.CONNECT_S", 0.2)
    server.answers["SELECT 1 EMIT CHANGES"] = [ENDLESS]
    assert ran(server, "SELECT 1 EMIT CHANGES;", "--query-timeout", "600") == "Query terminated\n"
    assert server.requests[0]["encoding"] == "identity"


def test_a_query_ends_after_so_many_milliseconds(server: FakeServer) -> None:
    server.answers["SELECT 1 EMIT CHANGES"] = [*rows(["a", []]), ENDLESS]
    printed = ran(server, "SELECT 1 EMIT CHANGES;", "--query-timeout", "300")
    assert printed.splitlines()[3:] == ["|a               |[]              |", "Query terminated"]
    assert server.query_ended.wait(60)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"errorMessage": {"@type": "generic_error", "message": "a worker died"}}', "a worker died"),
        ('{"@type": "generic_error", "error_code": 50000, "message": "out of order"}', "out of order"),
        ("oh no", "the server sent no row: oh no"),
    ],
)
def test_a_query_that_fails_among_its_rows(server: FakeServer, line: str, said: str) -> None:
    server.answers["SELECT 1"] = [*rows(["a", []]), line]
    found = shell(server, "-e", "SELECT 1;")
    assert (found.exit_code, found.stderr) == (FAILED, f"error: {said}\n")
    assert "|a " in found.stdout


def test_a_query_that_is_refused(server: FakeServer) -> None:
    server.answers["SELECT 1"] = MISSING
    assert shell(server, "-e", "SELECT 1;").stderr == "error: X does not exist.\n"


def test_a_row_without_end(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felice.pipelines.sql.shell.client.MAX_LINE_BYTES", 1000)
    assert MAX_LINE_BYTES > 1000
    server.answers["SELECT 1"] = ["x" * 100_000]
    assert shell(server, "-e", "SELECT 1;").stderr.startswith("error: a row has over 1,000 bytes")


# Variables and properties


def test_variables(server: FakeServer) -> None:
    printed = ran(
        server,
        "DEFINE b = 'it''s'; DROP ${a}; SELECT '${b}'; SHOW VARIABLES; UNDEFINE b; LIST VARIABLES;",
        "-d",
        "a=STREAM x",
    )
    assert server.statements == ["DROP STREAM x;", "SELECT 'it''s';"]
    listed = [line.split("|") for line in printed.splitlines() if "|" in line]
    assert [[cell.strip() for cell in line] for line in listed] == [
        ["Variable Name", "Value"],
        ["a", "STREAM x"],
        ["b", "it's"],
        ["Variable Name", "Value"],
        ["a", "STREAM x"],
    ]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP ${a};", "error: line 1:1: the variable a is not defined; DEFINE a = '...';\n"),
        ("UNDEFINE a;", "error: the variable a is not defined\n"),
        ("DEFINE a;", "error: line 1:9: expected '='"),
        ("UNSET 'a';", "error: the property a is not set in this session\n"),
        ("SET 'bad' = '1';", "error: One or more properties overrides set locally are invalid: bad\n"),
        ("spool off", "error: there is no spool to end\n"),
        ("spool", "error: expected spool 'FILE', or spool off\n"),
        ("spool /no/such/file", "error: /no/such/file: No such file or directory\n"),
        ("run script", "error: expected run script 'FILE'\n"),
        ("run script '/no/such';", "error: /no/such: No such file or directory\n"),
        ("server nowhere", f"error: {NO_ADDRESS}\n"),
    ],
)
def test_what_fails_without_a_statement_for_the_server(server: FakeServer, statement: str, said: str) -> None:
    server.invalid_properties.add("bad")
    found = shell(server, "-e", statement)
    assert found.exit_code == FAILED
    assert found.stderr.startswith(said), found.stderr
    assert server.requests == []


def test_substitution_can_be_turned_off(server: FakeServer) -> None:
    ran(server, "SET 'ksql.variable.substitution.enable' = 'false'; a '${b}';")
    assert server.statements == ["a '${b}';"]


def test_a_property_that_the_server_cannot_check_is_set(server: FakeServer) -> None:
    server.checks_properties = False
    ran(server, "SET 'a' = 'b'; c;")
    assert server.requests[0]["streamsProperties"] == {"a": "b"}


def test_properties_of_a_session(server: FakeServer, tmp_path: Path) -> None:
    config = tmp_path / "ksql.properties"
    config.write_text("auto.offset.reset=earliest\nksql.streams.num.stream.threads=2\n")
    printed = ran(
        server,
        "a; SET 'auto.offset.reset' = 'latest'; SELECT 1; UNSET 'auto.offset.reset'; c;",
        "--config-file",
        str(config),
    )
    threads = {"ksql.streams.num.stream.threads": "2"}
    assert [request["streamsProperties"] for request in server.requests] == [
        {"auto.offset.reset": "earliest", **threads},
        {"auto.offset.reset": "latest", **threads},
        threads,
    ]
    assert printed.splitlines() == [
        "Successfully changed local property 'auto.offset.reset' from 'earliest' to 'latest'. "
        "Use the UNSET command to revert your change.",
        "Query terminated",
        "Successfully unset local property 'auto.offset.reset' (value was 'latest').",
    ]


# Scripts


def test_a_file_of_statements(server: FakeServer, tmp_path: Path) -> None:
    """Definitions of a script that another one runs count in that one."""
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("\ufeff-- names\nDEFINE x = 'y';\n", encoding="utf-8")
    outer.write_text(f"RUN SCRIPT '{inner}';\na\n  ${{x}}; -- the last\nb")
    found = shell(server, "-f", str(outer))
    assert (found.exit_code, found.stderr) == (0, "")
    assert server.statements == ["a\n  y;", "b;"]


def test_a_file_ends_at_its_first_error_which_names_the_line(server: FakeServer, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("a;\n\n  b;\nc;")
    outer.write_text(f"RUN SCRIPT '{inner}';\nd;")
    server.answers["b"] = MISSING
    found = shell(server, "-f", str(outer))
    assert (found.exit_code, found.stderr) == (
        FAILED,
        f"error: {outer}, line 1: {inner}, line 3: X does not exist.\n",
    )
    inner.write_text("a;\n DROP ${x};")
    found = shell(server, "-f", str(inner))
    assert found.stderr.startswith(f"error: {inner}, line 2:2: the variable x is not defined")
    inner.write_bytes(b"\xff")
    assert shell(server, "-f", str(inner)).stderr == f"error: {inner} is not text in UTF-8\n"


def test_scripts_that_run_each_other_end(server: FakeServer, tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(f"RUN SCRIPT '{script}';")
    found = shell(server, "-f", str(script))
    assert found.exit_code == FAILED
    assert found.stderr.rstrip().endswith("scripts run each other 16 deep")


def test_a_script_may_run_many_others(server: FakeServer, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("a;")
    outer.write_text(f"RUN SCRIPT '{inner}';\n" * 20)
    assert shell(server, "-f", str(outer)).exit_code == 0
    assert server.statements == ["a;"] * 20


def test_exit_ends_a_script(server: FakeServer, tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text("a;\nexit\nb;")
    assert shell(server, "-f", str(script)).exit_code == 0
    assert shell(server, "-e", "a; exit; b;").exit_code == 0
    assert server.statements == ["a;", "a;"]


def test_statements_of_standard_input_go_on_after_an_error(server: FakeServer) -> None:
    """As at the prompt, but the exit status tells."""
    server.answers["b"] = MISSING
    found = shell(server, typed="\na;\nb;\n\nSELECT\n1;\nversion\nc")
    assert server.statements == ["a;", "b;", "SELECT\n1;", "c;"]
    assert (found.exit_code, found.stderr) == (FAILED, "error: X does not exist.\n")
    assert f"Felice {__version__}; server 7.9\n" in found.stdout
    assert shell(server, typed="a; exit; b;").exit_code == 0


def test_spool(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "log"
    server.answers.update({"a": status("done"), "b": MISSING})
    shell(server, typed=f"spool '{file}'\na;\nb;\nspool off\nc;\n")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("Session will be spooled to ")
    assert [line for line in lines if line.startswith("ksql>")] == ["ksql> a;", "ksql> b;", "ksql> spool off"]
    assert " done" in lines and "error: X does not exist." in lines


def test_a_spool_takes_the_place_of_the_one_before(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    usual = Output.end_spool
    monkeypatch.setattr(Output, "end_spool", lambda output: closed.append(usual(output)))
    shell(server, typed=f"spool {tmp_path / 'a'}\na;\nspool {tmp_path / 'b'}\nc;\n")
    assert "ksql> c;" in (tmp_path / "b").read_text() and "c;" not in (tmp_path / "a").read_text()
    assert closed == [False, True, True]


# Servers


def test_commands_about_servers(server: FakeServer) -> None:
    server.answers["a"] = status("", 7)
    with serving() as other:
        printed = ran(server, f"server; a; server {other.url}\nb; help;")
    assert "commandSequenceNumber" not in other.requests[0]
    lines = [line for line in printed.splitlines() if line.startswith("Server: ")]
    assert lines == [f"Server: {server.url}", f"Server: {other.url}"]
    assert "run script" in printed
    assert (server.statements, other.statements) == (["a;"], ["b;"])


def test_without_a_server_one_line_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felice.pipelines.sql.shell.client.DEFAULT_URL", "http://127.0.0.1:1")
    found = CliRunner().invoke(felice, ["sql", "-e", "SHOW STREAMS;"])
    assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (FAILED, "", 1)
    assert found.stderr.startswith("error: no server of SQL answers at http://127.0.0.1:1: ")
    assert "felice sql-server" in found.stderr
    # Who names a server knows where it is.
    assert "sql-server" not in shell("http://me:secret@127.0.0.1:1", "-e", "a").stderr


def test_an_address_that_is_no_server_of_sql(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_server.INFO", [])
    said = shell(server, "-e", "a").stderr
    assert said == f"error: {server.url} is not a SQL server: its /info has no KsqlServerInfo\n"
    assert shell("ftp://x", "-e", "a").stderr.startswith("error: expected the address of a server")
    assert shell("localhost:8088", "-e", "a").stderr.startswith("error: expected the address of a server")


def test_user_and_password() -> None:
    with serving("ann:p w") as server:
        assert ran(server, "a;", "-u", "ann", "-p", "p w") == ""
        inside = server.url.replace("//", "//ann:p%20w@")
        assert shell(inside, "-e", "server").stdout == f"Server: {server.url}\n"
        found = shell(server, "-u", "ann", "-p", "no", "-e", "a;")
        assert (found.exit_code, found.stderr) == (
            FAILED,
            "error: the server asks for a user and a password: felice sql -u USER\n",
        )
        assert "set --password or FELICE_SQL_PASSWORD" in shell(server, "-u", "ann", "-e", "a").stderr
        words = ["sql", server.url, "-u", "ann", "-e", "a"]
        assert CliRunner(env={"FELICE_SQL_PASSWORD": "p w"}).invoke(felice, words).exit_code == 0
    assert shell(server, "-p", "p", "-e", "a").exit_code == 2


def test_tls_is_that_of_the_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ssl.SSLContext | None] = []

    class Seeing(Server):
        def __init__(self, url: str, user: tuple[str, str] | None, tls: ssl.SSLContext | None) -> None:
            seen.append(tls)
            raise ShellError("seen")

    monkeypatch.setattr("felice.pipelines.sql.shell.client.Server", Seeing)
    config = tmp_path / "ksql.properties"
    config.write_text("ssl.endpoint.identification.algorithm=\na=b\n")
    shell("https://localhost:1", "--config-file", str(config), "-e", "a")
    shell("https://localhost:1", "-e", "a")
    assert seen[0] is not None and not seen[0].check_hostname and seen[0].verify_mode == ssl.CERT_REQUIRED
    assert seen[1] is None
    config.write_text("ssl.truststore.location=/no/such.p12\nssl.truststore.type=PKCS12\n")
    with pytest.raises(Exception, match=r"/no/such\.p12"):
        shell("https://localhost:1", "--config-file", str(config), "-e", "a")


def test_the_address_may_stand_among_the_options(server: FakeServer) -> None:
    for words in (["-e", "a", server.url], [server.url, "-e", "a"], ["-e", "a", "--", server.url]):
        assert CliRunner().invoke(felice, ["sql", *words]).exit_code == 0
    assert CliRunner(env={"FELICE_SQL_URL": server.url}).invoke(felice, ["sql", "-e", "a"]).exit_code == 0
    assert server.statements == ["a;"] * 4


def test_statements_of_an_option_exclude_a_file(server: FakeServer) -> None:
    assert shell(server, "-e", "a", "-f", "b").exit_code == 2


def test_options_of_the_shell_are_none_of_its_subcommands(server: FakeServer) -> None:
    found = shell(server, "functions", "UCASE")
    assert (found.exit_code, "--server has no effect with functions" in found.stderr) == (2, True)
    assert CliRunner().invoke(felice, ["sql", "-d", "a=b", "functions"]).exit_code == 2
    env = {"FELICE_SQL_URL": server.url, "FELICE_SQL_PASSWORD": "p"}
    assert CliRunner(env=env).invoke(felice, ["sql", "functions", "UCASE"]).exit_code == 0


def test_a_file_in_the_place_of_a_server_says_how_to_run_it(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text("SHOW STREAMS;")
    found = CliRunner().invoke(felice, ["sql", str(file)])
    assert (found.exit_code, f"felice sql -f {file}" in found.stderr) == (2, True)


def test_what_was_applied_is_shown_before_the_statement_that_is_refused(
    server: FakeServer, tmp_path: Path
) -> None:
    first, second = (
        f"CREATE STREAM {name} (k INT) WITH (kafka_topic='x', format='JSON')" for name in ("one", "two")
    )
    server.answers[second] = MISSING
    (tmp_path / "a.sql").write_text(f"{first};")
    (tmp_path / "b.sql").write_text(f"{second};")
    found = CliRunner().invoke(felice, ["sql", "apply", str(tmp_path), "--server", server.url])
    assert found.exit_code == 1
    assert "ONE" in found.stdout
    assert "TWO" not in found.stdout
    assert found.stderr == f"Error: {tmp_path / 'b.sql'}, TWO: X does not exist.\n"
    assert server.statements[-2:] == [f"{first};", f"{second};"], "each ends with one semicolon"
