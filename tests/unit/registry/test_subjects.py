"""Names of subjects and contexts."""

from __future__ import annotations

import pytest

from felice.registry.errors import RegistryError
from felice.registry.subjects import check, context_name, normalized, split, within


@pytest.mark.parametrize(
    ("name", "parts", "normal"),
    [
        ("orders", (".", "orders"), "orders"),
        (":.eu:orders", (".eu", "orders"), ":.eu:orders"),
        (":.:orders", (".", "orders"), "orders"),
        (":.eu:", (".eu", ""), ":.eu:"),
        (":.eu", (".eu", ""), ":.eu:"),
        (":.eu:a:b", (".eu", "a:b"), ":.eu:a:b"),
        (":orders", (".", ":orders"), ":orders"),
        ("", (".", ""), ""),
    ],
)
def test_a_name_has_a_context_and_a_subject(name: str, parts: tuple[str, str], normal: str) -> None:
    assert split(name) == parts
    assert normalized(name) == normal


@pytest.mark.parametrize(
    ("parent", "name", "qualified"),
    [
        ("s", "r", "r"),
        (":.eu:s", "r", ":.eu:r"),
        (":.eu:s", ":.us:r", ":.us:r"),
        (":.eu:s", ":.:r", "r"),
        ("s", ":.us:r", ":.us:r"),
        ("", "r", "r"),
    ],
)
def test_a_reference_is_in_the_context_of_its_schema(parent: str, name: str, qualified: str) -> None:
    assert within(parent, name) == qualified


@pytest.mark.parametrize("text", ["eu", ".eu", ":.eu:", ":.eu", ".eu:"])
def test_a_context_has_several_spellings(text: str) -> None:
    assert context_name(text) == ".eu"


@pytest.mark.parametrize("text", ["a:b", "a\x00", ".a\x7f"])
def test_an_impossible_context_is_refused(text: str) -> None:
    with pytest.raises(RegistryError):
        context_name(text)


@pytest.mark.parametrize("name", ["__GLOBAL", ":.eu:__GLOBAL", "a\nb", "a\x9fb", "a\ud83d"])
def test_an_impossible_subject_is_refused(name: str) -> None:
    with pytest.raises(RegistryError) as refused:
        check(name)
    assert refused.value.code == 42208
