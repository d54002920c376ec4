"""The programs of docs/streams-examples.md pass the tests that stand below them."""

import pytest

from streams.documents import blocks, count_blocks, run_block

DOCUMENT = "streams-examples.md"
PROGRAMS, TESTS = blocks(DOCUMENT, "example"), blocks(DOCUMENT, "test")


def test_every_program_has_its_test() -> None:
    assert list(PROGRAMS) == list(TESTS)
    assert len(PROGRAMS) + len(TESTS) == count_blocks(DOCUMENT)
    assert len(PROGRAMS) == 8


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_passes_its_test(name: str) -> None:
    defined = run_block(DOCUMENT, name, PROGRAMS[name])
    run_block(DOCUMENT, f"test of {name}", TESTS[name], **defined)
