"""Apps for a host, and a driver that runs them until it is killed."""

from __future__ import annotations

import sys
from functools import partial

from felice.streams import App


def filtering(name: str) -> App:
    app = App(f"{name}-filter")
    app.stream(f"{name}-orders").filter(lambda key, order: order["amount"] % 2 == 0).to(f"{name}-even")
    return app


def counting(name: str) -> App:
    app = App(f"{name}-count")
    app.stream(f"{name}-orders").group_by_key().count(name="orders").to_stream().to(f"{name}-counts")
    return app


def fragile(name: str, *, repaired: bool = False) -> App:
    """It fails at an order of 13, and has a state of its own."""

    def amount(key: str, order: dict[str, int]) -> int:
        if order["amount"] == 13 and not repaired:
            raise ValueError("thirteen")
        return order["amount"]

    app = App(f"{name}-sum")
    amounts = app.stream(f"{name}-orders").map_values(amount, value="int")
    amounts.group_by_key().reduce(lambda so_far, one: so_far + one, name="sums").to_stream().to(
        f"{name}-sums"
    )
    return app


def twice(name: str) -> App:
    """Two parts with state, one after the other: how many customers have which number of orders."""
    app = App(f"{name}-twice")
    counts = app.stream(f"{name}-orders").group_by_key().count(name="each")
    by_count = counts.group_by(lambda key, count: (str(count), count), key="string")
    by_count.count(name="all").to_stream().to(f"{name}-customers")
    return app


APPS = {
    "filter": filtering,
    "count": counting,
    "sum": fragile,
    "repaired": partial(fragile, repaired=True),
    "twice": twice,
}


def main() -> None:
    from felice.pipelines.streams.on_spark.host.host import Host

    bootstrap, checkpoint, name = sys.argv[1:]
    host = Host(bootstrap, checkpoint, master="local[2]", partitions=2)
    host.start()
    for line in sys.stdin:
        host.put(APPS[line.strip()](name))
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
