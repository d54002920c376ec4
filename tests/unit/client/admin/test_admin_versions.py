"""The admin client, and the tools that show versions, with older and newer brokers and without responses."""

from __future__ import annotations

import json

import pytest

from felice.cli import main
from felice.cli.kafka_tools.broker_api_versions import kafka_broker_api_versions
from felice.client import KafkaError, KafkaException
from felice.client.admin import AdminClient
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from unit.client.fake_broker import FakeBroker

# A future version of Produce, an old one of Fetch, ListTransactions of Kafka 3.0, and an API that does not exist yet.
RANGES = {0: (90, 91), 1: (0, 3), 3: (0, 12), 18: (0, 3), 66: (0, 0), 999: (1, 2)}


def test_usable_is_what_both_sides_have(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(ranges=RANGES) as broker:
        assert main.run(kafka_broker_api_versions, ("--bootstrap-server", broker.bootstrap)) == 0
        first, *rows, last = capsys.readouterr().out.splitlines()
        assert main.run(main.felice, ("cluster", "api-versions", "-b", broker.bootstrap, "--json")) == 0
        ours = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert first == f"{broker.bootstrap} (id: 1 rack: null isFenced: false) -> ("
    assert last == ")"
    assert rows[:4] == [
        "\tProduce(0): 90 to 91 [unusable: node too new],",
        "\tFetch(1): 0 to 3 [unusable: node too old],",
        "\tListOffsets(2): UNSUPPORTED,",
        "\tMetadata(3): 0 to 12 [usable: 12],",
    ]
    assert "\tListTransactions(66): 0 [usable: 0]," in rows
    assert rows[-1] == "\tUNKNOWN(999): 1 to 2"
    assert (ours[0]["usable"], ours[66]["usable"], ours[999]["api"]) == (None, 0, None)


def test_a_broker_that_does_not_tell_its_versions_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as broker:
        for command, words, code in (
            (kafka_broker_api_versions, ("--bootstrap-server",), 0),
            (main.felice, ("cluster", "api-versions", "--json", "-b"), 1),
        ):
            usual = broker.handlers[ApiVersionsRequest]
            refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            # The first request is the connection's own ApiVersions.
            broker.script(ApiVersionsRequest, usual, refusal)
            assert main.run(command, (*words, broker.bootstrap)) == code
            said = capsys.readouterr()
            assert "(id: 1 rack: null isFenced: false) -> ERROR: " in said.out or "broker 1: " in said.err


def test_no_filter_is_dropped_that_a_broker_does_not_know() -> None:
    row = TransactionState(transactional_id="tx", producer_id=7, transaction_state="Ongoing")
    with (
        FakeBroker(ranges=RANGES) as broker,
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
    ):
        for chosen in ({"longer_than_ms": 0}, {"pattern": "t.*"}):
            error = admin.list_transactions(**chosen).exception(60)  # type: ignore[arg-type]
            assert isinstance(error, KafkaException)
            assert error.code == KafkaError._UNSUPPORTED_FEATURE
        assert broker.asked(ListTransactionsRequest) == []
        broker.script(ListTransactionsRequest, ListTransactionsResponse(transaction_states=[row]))
        [found] = admin.list_transactions(producer_ids=[7]).result(60)[1]
        assert (found.transactional_id, found.state.value) == ("tx", "Ongoing")
        [asked] = broker.asked(ListTransactionsRequest)
        assert asked.producer_id_filters == [7]
