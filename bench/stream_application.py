"""The applications of `StreamsLoad.java` as a Felice App, for `felice run`.

`FELICE_BENCH_STREAM` is "kind input table output": which application it is, and its topics.
"""

import os

from felice.streams import App, Stream, mins, secs


def words(stream: Stream, table: str) -> Stream:
    """How often each word came."""
    split = stream.flat_map_values(lambda key, line: line.split(" "))
    return split.group_by(lambda key, word: word).count(name="counts").to_stream()


def count(stream: Stream, table: str) -> Stream:
    """Records of each key."""
    return stream.group_by_key().count(name="counts").to_stream()


def undo(stream: Stream, table: str) -> Stream:
    """Keys of each region. A new value of a key takes it from its old region."""
    regions = stream.to_table(name="rows").group_by(lambda key, value: (value.split(" ")[0], value))
    return regions.count(name="counts").to_stream()


def hopping(stream: Stream, table: str) -> Stream:
    """Records of each key in three windows that overlap."""
    windows = stream.group_by_key().hopping(mins(1), every_ms=secs(20), grace_ms=secs(10))
    return windows.count(name="counts").to_stream()


def join(stream: Stream, table: str) -> Stream:
    """Each record with the table's row of its key."""
    return stream.join(app.table(table, name="rows"), lambda value, row: f"{value}|{row}")


def sessions(stream: Stream, table: str) -> Stream:
    """Records of each key's sessions."""
    return stream.group_by_key().session(secs(5), grace_ms=secs(10)).count(name="counts").to_stream()


kind, given, with_table, result = os.environ["FELICE_BENCH_STREAM"].split()
app = App(result, value="string")
applications = {one.__name__: one for one in (words, count, undo, hopping, join, sessions)}
results = applications[kind](app.stream(given), with_table)
results.to(result, value="string" if kind == "join" else "json")
