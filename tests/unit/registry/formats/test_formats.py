"""The table of formats."""

from __future__ import annotations

import subprocess
import sys

from felice.registry.formats import FORMATS


def test_the_formats_are_those_of_the_rest_api() -> None:
    assert list(FORMATS) == ["AVRO", "JSON", "PROTOBUF"]


def test_the_table_imports_no_formats_library() -> None:
    program = """
import sys, felice.registry.formats
assert not {"avro", "jsonschema", "google", "grpc_tools"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
