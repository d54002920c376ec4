from __future__ import annotations

import pytest

pytest.importorskip("pyspark")


def test_a_session_and_a_registration_have_short_names() -> None:
    import felice.spark
    from felice.pipelines.spark import session

    assert felice.spark.session is session.session
    assert felice.spark.register is session.register


def test_a_session_keeps_the_java_and_python_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from felice.env.java import find_java
    from felice.pipelines.spark.session import prepare_environment

    chosen = str(find_java().home)
    monkeypatch.setenv("JAVA_HOME", chosen)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    prepare_environment()
    assert (os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"]) == (chosen, "/opt/python")


@pytest.mark.parametrize(
    ("master", "remote"),
    [
        ("sc://local[2]", "local[2]"),
        ("sc://local", "local"),
        ("sc://localhost:15002", "sc://localhost:15002"),
        ("sc://spark.example:15002", "sc://spark.example:15002"),
    ],
)
def test_a_connect_server_may_be_one_that_is_started_here(master: str, remote: str) -> None:
    from felice.pipelines.spark.session import connect_address

    assert connect_address(master) == remote
