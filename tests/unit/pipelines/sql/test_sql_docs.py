"""Runs the examples of docs/sql.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.cases import result_of
from felice.pipelines.sql.offline.files import FileError, outcome_of_files
from felice.pipelines.sql.user_functions import load_directory

DOCUMENT = (Path(__file__).parents[4] / "docs" / "sql.md").read_text()


def block(marker: str, language: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None, marker
    return found[1]


def test_the_first_program_passes_its_test(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("payments.sql", "input.json", "output.json")]
    blocks = (("example: payments", "sql"), ("input: payments", "json"), ("output: payments", "json"))
    for file, (marker, language) in zip(files, blocks, strict=True):
        file.write_text(block(marker, language))
    assert outcome_of_files(*files, {}, built_in()) is None
    files[2].write_text(files[2].read_text().replace("12.50", "12.51"))
    assert "12.51" in str(outcome_of_files(*files, {}, built_in()))


def test_the_function_of_a_user_works(tmp_path: Path) -> None:
    (tmp_path / "masked.py").write_text(block("functions", "python"))
    functions = built_in().copy()
    functions.add_all(load_directory(tmp_path))
    statements, outputs = tmp_path / "s.sql", tmp_path / "o.json"
    statements.write_text(
        "CREATE STREAM a (k STRING KEY, c STRING) WITH (kafka_topic='a', value_format='JSON');"
        "CREATE STREAM b AS SELECT k, MASKED(c) AS c FROM a;"
        "INSERT INTO a VALUES ('1', '4711000012345678');"
    )
    outputs.write_text('{"outputs": [{"topic": "B", "key": "1", "value": {"C": "************5678"}}]}')
    assert outcome_of_files(statements, None, outputs, {}, functions) is None


def test_statements_without_an_assertion_need_expected_records(tmp_path: Path) -> None:
    """The word alone does not count: such a test would pass and test nothing."""
    file, stream = tmp_path / "s.sql", "CREATE STREAM a (k INT KEY) WITH (kafka_topic='a', format='JSON');"
    for text in (stream, f"-- assert\n{stream}", stream.replace("k INT", "asserted INT")):
        file.write_text(text)
        with pytest.raises(FileError, match=r"s\.sql has no ASSERT statement: give the expected records"):
            outcome_of_files(file, None, None, {}, built_in())
    file.write_text(f"{stream} ASSERT STREAM a (k INT KEY) WITH (kafka_topic='a', format='JSON');")
    assert outcome_of_files(file, None, None, {}, built_in()) is None
    file.write_text("CREATE STREAM; ASSERT TOPIC a;")
    assert "line 1:14: expected" in str(outcome_of_files(file, None, None, {}, built_in()))


@pytest.mark.parametrize("name", re.findall(r"<!-- recipe: (\w+) -->", DOCUMENT))
def test_a_recipe_is_accepted(name: str) -> None:
    statements = [block("example: payments", "sql"), block(f"recipe: {name}", "sql")]
    found = result_of({"name": name, "statements": statements}, built_in())
    assert found["passed"], found["error"]
