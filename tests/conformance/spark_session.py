"""One Spark for all tests of a process; it takes seconds to start."""

from collections.abc import Iterator
from typing import Any

import pytest

QUICK = "-XX:TieredStopAtLevel=1"
"""Java lives too short in tests for the optimising compiler, which takes almost half of its processor time."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")
    from felice.pipelines.spark.java import options_for_few_resources
    from felice.pipelines.spark.session import session, stop

    settings = {
        "spark.driver.defaultJavaOptions": options_for_few_resources(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
        # The store of objects on this machine takes any login.
        "spark.executorEnv.AWS_ACCESS_KEY_ID": "test",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "test",
    }
    started = session("conformance", "local[2]", config=settings)
    yield started
    stop(started)
