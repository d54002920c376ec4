"""The recipes of docs/cookbook.md pass the tests that stand below them."""

from pathlib import Path

import pytest

from felice.testing import Broker
from streams.documents import blocks, count_blocks, run_block

DOCUMENT = "cookbook.md"
PROGRAMS, TESTS = blocks(DOCUMENT, "example"), blocks(DOCUMENT, "test")


def test_every_recipe_has_its_test() -> None:
    assert list(PROGRAMS) == list(TESTS)
    assert len(PROGRAMS) + len(TESTS) == count_blocks(DOCUMENT)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "TestDriver" in TESTS[name]])
def test_a_recipe_with_streams_passes_its_test(name: str) -> None:
    defined = run_block(DOCUMENT, name, PROGRAMS[name])
    run_block(DOCUMENT, f"test of {name}", TESTS[name], **defined)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "TestDriver" not in TESTS[name]])
def test_a_recipe_with_a_client_passes_its_test(name: str, tmp_path: Path) -> None:
    defined = run_block(DOCUMENT, name, PROGRAMS[name])
    with Broker() as broker:
        run_block(DOCUMENT, f"test of {name}", TESTS[name], broker=broker, directory=tmp_path, **defined)
