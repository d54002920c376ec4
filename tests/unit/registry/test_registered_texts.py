"""Texts that are registered already are parsed by the rules of the registry that accepted them."""

from __future__ import annotations

import pytest

from felice.registry.errors import RegistryError
from felice.registry.parsing import Parser

WITH_A_WRONG_DEFAULT = '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":"old"}]}'


def test_a_default_of_the_wrong_type_is_refused_in_new_texts_only() -> None:
    parser = Parser()
    assert parser.parse("AVRO", WITH_A_WRONG_DEFAULT, (), registered=True).canonical == WITH_A_WRONG_DEFAULT
    with pytest.raises(RegistryError, match="Invalid default for field f"):
        parser.parse("AVRO", WITH_A_WRONG_DEFAULT, ())
