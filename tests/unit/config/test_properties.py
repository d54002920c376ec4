"""`.properties` files are read as Java reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.config import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("# remark\n! remark\n\na=1", {"a": "1"}),
        ("a=x,\\\n   y", {"a": "x,y"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("k\\=1=2", {"k=1": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\u0041\\t", {"a": "A\t"}),
        ("a=x\x0by\x1cz\u2028w\rb=1", {"a": "x\x0by\x1cz\u2028w", "b": "1"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_a_line_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


@given(st.dictionaries(printable.filter(lambda key: key[0] not in "#!"), printable))
def test_written_properties_can_be_parsed_again(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties, "a heading")) == properties


@pytest.mark.parametrize("text", [r"broker.rack=pa\user", r"\u12=x", r"a=\\\u00g0", r"a=\u", r"a=\u004"])
def test_an_escape_that_java_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_properties(text)


@pytest.mark.parametrize(
    ("text", "value"), [(r"a=pa\\user", r"pa\user"), (r"a=\u0041\\u", r"A\u"), (r"a=\q\U", "qU")]
)
def test_escapes_that_java_takes(text: str, value: str) -> None:
    assert parse_properties(text) == {"a": value}
