"""The programs of docs/streams-porting.md pass the tests that stand below them."""

import pytest

from streams.documents import blocks, count_blocks, run_block

DOCUMENT = "streams-porting.md"
PROGRAMS, TESTS = blocks(DOCUMENT, "example"), blocks(DOCUMENT, "test")


def test_every_program_has_its_test() -> None:
    assert list(PROGRAMS) == list(TESTS)
    assert len(PROGRAMS) == 12
    assert len(PROGRAMS) + len(TESTS) == count_blocks(DOCUMENT)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_passes_its_test(name: str) -> None:
    defined = run_block(DOCUMENT, name, PROGRAMS[name])
    run_block(DOCUMENT, f"test of {name}", TESTS[name], **defined)
