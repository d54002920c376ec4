"""Imports of small directories, without the time that a disk takes."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test takes the power away."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
