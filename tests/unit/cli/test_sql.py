"""`felice sql test`: files, many cases, exit statuses, and input that is no test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from felice.cli import sql as commands
from felice.cli.faults import Fault
from felice.cli.sql_server import _settings, _worker

STREAM = "CREATE STREAM S (K INT KEY, V INT) WITH (kafka_topic='s', value_format='JSON');"
COPY = f"{STREAM} CREATE STREAM T AS SELECT * FROM S;"
INPUT = {"topic": "s", "key": 1, "value": {"V": 5}, "timestamp": 7}
OUTPUT = INPUT | {"topic": "T"}


def _run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(commands.sql, ["test", *map(str, arguments)], input=stdin)


def _cases(*cases: Any) -> tuple[Result, list[Any]]:
    lines = (one if isinstance(one, str) else json.dumps(one) for one in cases)
    result = _run("--cases", "-", stdin="\n".join(lines))
    return result, [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Statements, inputs and outputs of a test that passes."""
    statements, inputs, outputs = tmp_path / "a.sql", tmp_path / "in.json", tmp_path / "out.json"
    statements.write_text(COPY)
    inputs.write_text(json.dumps({"inputs": [INPUT]}))
    outputs.write_text(json.dumps({"outputs": [OUTPUT]}))
    return statements, inputs, outputs


def test_files_that_pass(files: tuple[Path, Path, Path]) -> None:
    """Says so, and exits with 0."""
    statements, inputs, outputs = files
    result = _run("-s", statements, "-i", inputs, "-o", outputs)
    assert (result.exit_code, result.stdout) == (0, "Test passed!\n")


def test_inserts_are_inputs(files: tuple[Path, Path, Path]) -> None:
    """Without a file of inputs, INSERT gives the records."""
    statements, _, outputs = files
    statements.write_text(f"{COPY} INSERT INTO S (ROWTIME, K, V) VALUES (7, 1, 5);")
    assert _run("-s", statements, "-o", outputs).exit_code == 0


@pytest.mark.parametrize(
    ("statements", "outputs", "reason"),
    [
        (COPY, [OUTPUT | {"timestamp": 8}], "expected the timestamp 8, and got 7"),
        (COPY, [OUTPUT, OUTPUT], "fewer than the expected 2"),
        ("SELECT;", [OUTPUT], "line 1:7: expected an expression"),
        (COPY, [{"key": 1}], "outputs[0]: it lacks the field topic"),
    ],
)
def test_files_that_fail(
    files: tuple[Path, Path, Path], statements: str, outputs: list[Any], reason: str
) -> None:
    """Says why on stderr, and exits with 1."""
    files[0].write_text(statements)
    files[2].write_text(json.dumps({"outputs": outputs}))
    result = _run("-s", files[0], "-i", files[1], "-o", files[2])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Test failed: ")
    assert reason in result.stderr


def test_a_difference_is_shown_as_json_and_a_topic_in_other_letters_is_hinted_at(
    files: tuple[Path, Path, Path],
) -> None:
    files[0].write_text(COPY.replace("V INT", "V DECIMAL(4, 2)"))
    for output, reason in (
        (OUTPUT | {"value": None}, 'value: expected null, and got {"V":5.00}'),
        (OUTPUT | {"topic": "t"}, "did you mean T?"),
    ):
        files[2].write_text(json.dumps({"outputs": [output]}))
        assert reason in _run("-s", files[0], "-i", files[1], "-o", files[2]).stderr


def test_statements_that_assert_need_no_expected_records(files: tuple[Path, Path, Path]) -> None:
    for value, status in ((5, 0), (6, 1)):
        files[0].write_text(f"{COPY} ASSERT VALUES t (K, V) VALUES (1, {value});")
        assert _run("-s", files[0], "-i", files[1]).exit_code == status
    files[0].write_text(COPY)
    result = _run("-s", files[0], "-i", files[1])
    assert (result.exit_code, "give the expected records" in result.stderr) == (2, True)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"outputs": 5}', None])
def test_files_that_cannot_be_read(files: tuple[Path, Path, Path], text: str | None) -> None:
    """Names the file, and exits with 2."""
    if text is None:
        files[2].unlink()
    else:
        files[2].write_text(text)
    result = _run("-s", files[0], "-i", files[1], "-o", files[2])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("felice: ")
    assert str(files[2]) in result.stderr


def test_a_property_of_a_test_in_files(files: tuple[Path, Path, Path]) -> None:
    """Is as SET before the first statement."""
    files[0].write_text(COPY.replace("value_format='JSON'", "partitions=1"))
    named = "ksql.persistence.default.format.value=JSON"
    assert _run("-s", files[0], "-i", files[1], "-o", files[2], "-p", named).exit_code == 0
    assert _run("-s", files[0], "-i", files[1], "-o", files[2]).exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-s", "x.sql"),
        ("-o", "x.json"),
        ("--cases", "-", "-s", "x.sql"),
        ("--cases", "-", "-p", "a=b"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...]) -> None:
    """Are refused as wrong usage."""
    assert _run(*arguments).exit_code == 2


def test_cases() -> None:
    """Each line has its result, in order, and empty lines have none."""
    result, found = _cases(
        {"name": "passes", "statements": [COPY], "inputs": [INPUT], "outputs": [OUTPUT]},
        "",
        {"name": "fails", "statements": [COPY], "inputs": [INPUT], "outputs": [OUTPUT | {"key": 2}]},
        {"name": "is refused", "statements": ["DROP STREAM X;"], "expected_error": "DOES NOT EXIST"},
    )
    assert result.exit_code == 1
    assert [(one["name"], one["passed"]) for one in found] == [
        ("passes", True),
        ("fails", False),
        ("is refused", True),
    ]
    assert (found[2]["failed_statement"], found[2]["error"]) == (1, "line 1:1: Stream X does not exist.")


def test_cases_that_share_nothing() -> None:
    """Each test has topics, schemas, variables and settings of its own."""
    case = {"name": "a", "statements": [COPY, "SET 'a' = 'b'; DEFINE x = 'y'; INSERT INTO S VALUES (1, 5);"]}
    outputs = [{"topic": "s", "key": 1, "value": {"V": 5}}, {"topic": "T", "key": 1, "value": {"V": 5}}]
    result, found = _cases(*[case | {"outputs": outputs}] * 3)
    assert result.exit_code == 0
    assert [one["passed"] for one in found] == [True] * 3


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("no JSON", "line 1 is no test: "),
        ("[" * 100_000, "line 1 is no test: it is nested too deep"),
        ("[1]", "line 1 is no test: expected a JSON object"),
        ({"name": "x"}, "it lacks the field statements"),
        ({"statements": []}, "it lacks the field name"),
        ({"name": 5, "statements": []}, "name: expected a text, and got 5"),
        ({"name": "x", "statements": "x"}, "statements: expected a list, and got 'x'"),
        ({"name": "x", "statements": [5]}, "statements[0]: expected a text, and got 5"),
        ({"name": "x", "statements": [], "properties": []}, "properties: expected an object"),
        ({"name": "x", "statements": [], "topics": [{}]}, "topics[0]: it lacks the field name"),
        (
            {"name": "x", "statements": [], "topics": [{"name": "t", "partitions": "x"}]},
            "topics[0].partitions: expected a whole number",
        ),
        ({"name": "x", "statements": [], "inputs": [{}]}, "inputs[0]: it lacks the field topic"),
        (
            {"name": "x", "statements": [], "inputs": [INPUT | {"timestamp": 2**63}]},
            "inputs[0].timestamp: expected a whole number",
        ),
        (
            {"name": "x", "statements": [], "inputs": [INPUT | {"window": {"end": 5}}]},
            "inputs[0].window: it lacks the field start",
        ),
        (
            {"name": "x", "statements": [], "outputs": [OUTPUT | {"headers": [{"VALUE": ""}]}]},
            "outputs[0].headers[0]: it lacks the field KEY",
        ),
        ({"name": "x", "statements": [], "expected_error": 5}, "expected_error: expected a text"),
        ({"name": "x", "statements": [], "inputs": [INPUT]}, "no statement declares a stream or table"),
        (
            {"name": "x", "statements": [STREAM.replace("JSON", "AVRO")], "inputs": [INPUT | {"value": 5}]},
            "an input of topic s cannot be written: expected an object with V",
        ),
        (
            {
                "name": "x",
                "statements": [],
                "topics": [{"name": "t", "valueFormat": "AVRO", "valueSchema": {}}],
            },
            "the topic t cannot be made: ",
        ),
        ({"name": "x", "statements": [f"SELECT {'(' * 10_000}"]}, "nested more than"),
        ({"name": "x", "statements": [f"{STREAM} SELECT V{'->a' * 20_000} FROM S;"] * 2}, ""),
    ],
)
def test_a_line_that_is_no_test(line: Any, error: str) -> None:
    """Has a result with one clear error, and the next test runs."""
    result, found = _cases(line, {"name": "next", "statements": [STREAM]})
    assert result.exit_code == 1
    assert [one["passed"] for one in found] == [False, True]
    assert error in found[0]["error"]
    assert set(found[0]) == set(found[1])


def test_a_test_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is ended, and the next one runs."""
    monkeypatch.setattr(commands, "LONGEST_S", 0.2)
    long = f"{STREAM} CREATE STREAM T AS SELECT K, {'+'.join(['V'] * 1_000_000)} AS X FROM S;"
    result, found = _cases({"name": "long", "statements": [long]}, {"name": "next", "statements": [STREAM]})
    assert result.exit_code == 1
    assert [(one["name"], one["passed"]) for one in found] == [("long", False), ("next", True)]
    assert "did not end within" in found[0]["error"]


def test_cases_of_a_file(tmp_path: Path) -> None:
    """Are read from it; a file that is not there, or no text, gives one line on stderr and 2."""
    file = tmp_path / "cases.jsonl"
    assert _run("--cases", file).exit_code == 2
    file.write_text(json.dumps({"name": "a", "statements": [STREAM]}))
    assert _run("--cases", file).exit_code == 0
    file.write_bytes(b"\xff\xfe\n")
    result = _run("--cases", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be read" in result.stderr


def test_an_unknown_setting_of_the_server_is_hinted_at() -> None:
    with pytest.raises(Fault, match=r"no setting auto\.offset\.rest; did you mean auto\.offset\.reset\?"):
        _settings(("auto.offset.rest=earliest",))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"nope": "x"}, '"ksql.connect.ssl.nope" is not supported'),
        ({"ca.location": "/etc/ssl.none"}, "ksql.connect.ssl.ca.location: /etc/ssl.none cannot be read"),
    ],
)
def test_a_wrong_option_of_the_connect_worker_is_told_by_its_name(options: dict[str, str], told: str) -> None:
    """It was the text of an object, and had the name of another option."""
    with pytest.raises(Fault) as fault:
        _worker(None, {f"ksql.connect.ssl.{name}": value for name, value in options.items()})
    assert told in fault.value.message
    assert "KafkaError" not in fault.value.message
