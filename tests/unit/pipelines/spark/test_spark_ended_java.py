"""A process whose Java was killed can start another one. Java is not here: a stand-in says that it has ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from pyspark import SparkContext
from pyspark.sql import SparkSession

from felice.pipelines.spark.session import forget_ended_java, has_java_ended


def _refuse() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("code", [None, -9])
def test_only_a_java_that_has_ended_is_forgotten(monkeypatch: pytest.MonkeyPatch, code: int | None) -> None:
    gateway = SimpleNamespace(proc=SimpleNamespace(poll=lambda: code), shutdown=_refuse)
    context = SimpleNamespace(stop=_refuse)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", object())
    monkeypatch.setattr(SparkSession, "_activeSession", object())
    assert has_java_ended() == (code is not None)
    forget_ended_java()
    known = SparkContext._gateway, SparkContext._active_spark_context, SparkSession._instantiatedSession
    assert all(one is None for one in known) == (code is not None)


def test_without_java_there_is_nothing_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    forget_ended_java()
    assert not has_java_ended()
