"""One query over one topic: `spark_smoke.py BOOTSTRAP TOPIC`. Prints Java's version and the records counted."""

import json
import sys

from felice.pipelines.spark.session import session, stop


def main(bootstrap: str, topic: str) -> None:
    spark = session("smoke", "local[1]", config={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    java = spark.sparkContext._jvm.System.getProperty("java.home")
    frame = (
        spark.read.format("felice").options(**{"kafka.bootstrap.servers": bootstrap}, subscribe=topic).load()
    )
    print(json.dumps({"java": java, "records": frame.count()}))
    stop(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
