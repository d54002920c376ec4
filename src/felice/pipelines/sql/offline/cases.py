"""Many tests in one file: each line is a test, and each line of the output its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.catalogue import SourceInfo
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.offline.comparison import difference
from felice.pipelines.sql.offline.queries import Response
from felice.pipelines.sql.offline.records import TopicTexts, source_over, texts_of_topic
from felice.pipelines.sql.offline.shapes import fault_of
from felice.pipelines.sql.offline.statements import Refused, Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.streams.task import StreamsError, TopicRecord

Case = Mapping[str, Any]


def result_of(case: Case, functions: FunctionTable) -> dict[str, Any]:
    """The result of one test. It raises no error."""
    if (fault := fault_of(case)) is not None:
        return failed(
            case.get("name") if isinstance(case, Mapping) else None,
            f"the test cannot run: {fault.lstrip('.: ')}",
        )
    run = _Run(case, functions)
    try:
        run.run()
    except Refused as refused:
        run.error, run.failed_statement = str(refused), refused.number
    except (StreamsError, TestFault) as error:
        run.error = str(error)
    except RecursionError:
        run.error = "something is nested too deep"
    except Exception as error:
        run.error = f"{type(error).__name__}: {error}"
    return run.result()


class TestFault(Exception):
    """A test that cannot run; the text says why."""

    __test__ = False


class _Run:
    """One test, while it runs."""

    def __init__(self, case: Case, functions: FunctionTable) -> None:
        self._case = case
        self._topics = Topics()
        self._statements = Statements(functions, _texts(case.get("properties") or {}), self._topics)
        self._texts_of_inputs: dict[str, TopicTexts] = {}
        self._described: dict[str, Case] = {}
        """The topics that the test describes, by name."""
        self.error: str | None = None
        self.failed_statement: int | None = None
        self._responses: list[dict[str, Any]] = []
        self._inputs: set[int] = set()
        """The numbers of the records that are inputs."""

    def run(self) -> None:
        """Run the statements, the queries, and the SELECTs."""
        for topic in self._case.get("topics") or ():
            try:
                self._topics.create(topic)
                texts_of_topic(topic, self._topics.registry)
            except ValueError as error:
                raise TestFault(f"the topic {topic['name']} cannot be made: {error}") from None
            self._described[topic["name"]] = topic
        for text in self._case["statements"]:
            self._statements.execute(text)
        inputs = [self._encoded(one) for one in self._case.get("inputs") or ()]
        self._inputs = {self._topics.write(record) for record in inputs}
        self._statements.run_queries(inputs)
        self._statements.check_asserted()
        for asked, found in self._statements.answers():
            self._responses.append(_response(asked.number, found))

    def _encoded(self, given: Case) -> TopicRecord:
        try:
            texts = self._texts_of_inputs.get(given["topic"])
            if texts is None:
                texts = self._texts_of_inputs[given["topic"]] = self._texts(given["topic"], for_input=True)
            return texts.encode(given)
        except ValueError as error:
            raise TestFault(f"an input of topic {given['topic']} cannot be written: {error}") from None

    def _texts(self, topic: str, *, for_input: bool = False) -> TopicTexts:
        source = source_over(self._statements.catalogue, topic)
        given = self._described.get(topic)
        described = TopicTexts() if given is None else texts_of_topic(given, self._topics.registry, source)
        if source is not None:
            declared = TopicTexts.of_source(source, self._topics.registry)
        else:
            declared = TopicTexts() if given is None else TopicTexts.of_unread()
        return described.over(declared) if for_input else declared.over(described)

    def result(self) -> dict[str, Any]:
        """What the test gave."""
        outputs = self._outputs()
        expected = self._case.get("expected_error")
        found = None
        if expected is not None:
            # A message of ksqlDB ends with a full stop, which the message of Felice may lack.
            wanted = expected.lower().removesuffix(".")
            passed = self.failed_statement is not None and wanted in (self.error or "").lower()
        else:
            if self.error is None:
                found = self._difference(outputs)
            passed = self.error is None and found is None
        return {
            "name": self._case.get("name"),
            "passed": passed,
            "error": self.error,
            "failed_statement": self.failed_statement,
            "difference": found,
            "outputs": outputs,
            "sources": [_source(one) for one in self._statements.catalogue.sources.values()],
            "responses": self._responses,
        }

    def _difference(self, outputs: list[dict[str, Any]]) -> str | None:
        wanted = self._case.get("outputs")
        if wanted == [] and not self._statements.asked and (topics := self._statements.written):
            return f"expected no records, and the queries wrote to {', '.join(topics)}"
        return difference(outputs, wanted or [], has_inputs=bool(self._case.get("inputs")))

    def _outputs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for topic in self._topics.all():
            written = [record for number, record in topic.records if number not in self._inputs]
            if not written:
                continue
            texts = self._texts(topic.name)
            for record in written:
                try:
                    found.append(texts.decode(record))
                except (FormatError, ValueError) as error:
                    found.append({"topic": topic.name, "error": str(error), "timestamp": record.timestamp})
        return found


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
    }


def _source(given: SourceInfo) -> dict[str, Any]:
    return {
        "name": given.name,
        "type": given.kind.lower(),
        "schema": given.schema_text(),
        "topic": given.topic,
        "key_format": given.key_format.name,
        "value_format": given.value_format.name,
        "window_type": None if given.window is None else given.window.kind,
        "window_size_ms": None if given.window is None else given.window.size_ms,
        "partitions": given.partitions,
        "is_source": given.is_read_only,
    }


def _response(number: int, found: Response | Exception) -> dict[str, Any]:
    if isinstance(found, Exception):
        return {
            "statement": number,
            "schema": None,
            "rows": [],
            "tombstones": [],
            "message": None,
            "error": str(found),
        }
    return {
        "statement": number,
        "schema": found.schema,
        "rows": found.rows,
        "tombstones": found.tombstones,
        "message": found.message,
        "error": None,
    }


def read_json(text: str) -> Any:
    """JSON whose decimal numbers keep their digits."""
    return json.loads(text, parse_float=_number)


def _number(text: str) -> Decimal | float:
    return float(text) if "e" in text.lower() else Decimal(text)


def parsed(line: str) -> dict[str, Any]:
    """The test of a line. Raises ValueError."""
    try:
        found = read_json(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")
    return found


def failed(name: Any, error: str) -> dict[str, Any]:
    """The result of a test that could not run to its end."""
    return {
        "name": name if isinstance(name, str) else None,
        "passed": False,
        "error": error,
        "failed_statement": None,
        "difference": None,
        "outputs": [],
        "sources": [],
        "responses": [],
    }
