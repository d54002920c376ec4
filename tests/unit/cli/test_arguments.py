"""Parsing of command line arguments, and the errors for wrong ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from felice.cli import main
from felice.cli.configs import parse_added
from felice.cli.consume import parse_offset
from felice.cli.decode_frame import decode_request, decode_response, parse_bytes, strip_size
from felice.cli.faults import Fault, describe_fault
from felice.cli.groups import choose_reset, parse_datetime, parse_duration
from felice.cli.offsets import parse_time, read_offset_file
from felice.cli.options import key_values
from felice.cli.output import show_json
from felice.cli.tokens import parse_hmac
from felice.cli.topics import replica_lists


def test_values_of_a_list_keep_their_commas_in_brackets() -> None:
    added = parse_added("a=1,cleanup.policy=[delete,compact],b=x=y")
    assert added == {"a": "1", "cleanup.policy": "delete,compact", "b": "x=y"}


def test_a_pair_without_a_value_is_refused() -> None:
    with pytest.raises(Fault, match="expected key=value, got 'retention'"):
        key_values(["retention"])


@pytest.mark.parametrize(
    ("text", "time"), [("latest", -1), ("earliest", -2), ("max-timestamp", -3), ("17", 17)]
)
def test_times_are_words_or_milliseconds(text: str, time: int) -> None:
    assert parse_time(text) == time


def test_an_unknown_word_is_refused_as_a_time() -> None:
    with pytest.raises(Fault, match="malformed time argument soon"):
        parse_time("soon")


def test_a_datetime_without_offset_is_utc() -> None:
    assert parse_datetime("1970-01-01T00:00:01.500") == 1500
    assert parse_datetime("1970-01-01T01:00:00+01:00") == 0
    with pytest.raises(Fault, match="is not a time like"):
        parse_datetime("yesterday")


def test_durations_count_back_from_now() -> None:
    now = datetime(1970, 1, 3, tzinfo=UTC)
    assert parse_duration("P1DT2H", now) == 22 * 3_600_000
    with pytest.raises(Fault, match="is not a duration"):
        parse_duration("P", now)
    with pytest.raises(Fault, match="'P9999999D' is too long"):
        parse_duration("P9999999D", now)


class FakeReset:
    def to_earliest(self) -> dict[tuple[str, int], int]:
        return {("t", 0): 0}

    def to_offset(self, offset: int) -> dict[tuple[str, int], int]:
        return {("t", 0): offset}

    shift_by = to_time = to_offset


def test_offset_zero_counts_as_a_chosen_reset() -> None:
    assert choose_reset(FakeReset(), {"to_offset": 0}, datetime.now(UTC)) == {("t", 0): 0}  # type: ignore[arg-type]


@pytest.mark.parametrize("choices", [{}, {"to_earliest": True, "to_offset": 3}])
def test_no_reset_or_two_resets_are_refused(choices: dict[str, object]) -> None:
    with pytest.raises(Fault, match="choose exactly one of --to-earliest"):
        choose_reset(FakeReset(), choices, datetime.now(UTC))  # type: ignore[arg-type]


def test_an_offset_file_is_read_and_a_wrong_one_is_refused_with_the_expected_form(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": 1, "offset": 5}], "version": 1}')
    assert read_offset_file(path) == {("t", 1): 5}
    path.write_text('{"partitions": [{"topic": "t"}]}')
    with pytest.raises(Fault, match="is not of the form"):
        read_offset_file(path)
    path.write_text("")
    with pytest.raises(Fault, match=r"is not JSON: Expecting value"):
        read_offset_file(path)


def test_replicas_are_written_with_colons() -> None:
    assert replica_lists("0:1,1:2") == [[0, 1], [1, 2]]
    with pytest.raises(Fault, match="expected replicas like"):
        replica_lists("0;1")


@pytest.mark.parametrize("text", ["00 00:00 01\n", "0x00000001", "AAAAAQ=="])
def test_a_frame_is_hexadecimal_or_base64(text: str) -> None:
    assert parse_bytes(text) == b"\0\0\0\1"


def test_a_frame_that_is_neither_hexadecimal_nor_base64_is_refused() -> None:
    with pytest.raises(Fault, match="neither hexadecimal digits nor base64"):
        parse_bytes("hello!")


def test_only_a_correct_size_prefix_is_removed() -> None:
    assert strip_size(b"\0\0\0\2ab") == b"ab"
    assert strip_size(b"\0\0\0\3ab") == b"\0\0\0\3ab"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (click.UsageError("what?"), 2, "what?"),
        (Fault("do this"), 1, "error: do this"),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "error: /x: No such file or directory"),
        (ModuleNotFoundError("no", name="pyspark.sql"), 1, "pip install 'felice[spark]'"),
    ],
)
def test_a_fault_prints_one_line_and_sets_the_exit_code(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(**_: object) -> None:
        raise error

    assert main.run(command) == code
    assert said in capsys.readouterr().err


def test_a_subclass_of_a_fault_is_a_fault() -> None:
    from felice.server.startup import StartupError

    class Worse(StartupError):
        pass

    assert describe_fault(Worse("the disk is gone")) == "the disk is gone"


def test_a_broker_that_does_not_answer_is_told_without_the_clients_layers() -> None:
    from felice.client.error import KafkaError, error_of, failure, no_broker_answers

    down = no_broker_answers([error_of(KafkaError._TRANSPORT, "a:9092: Connection refused")])
    expected = (
        "no broker answers: a:9092: Connection refused. Is one running, and does --bootstrap-server name it?"
    )
    assert describe_fault(down) == expected
    assert describe_fault(failure(KafkaError._MSG_TIMED_OUT, down.error.str())) == expected


def test_bytes_that_are_not_text_stay_distinct_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([b"\xbe", b"\\xbe", b"text"])
    assert json.loads(capsys.readouterr().out) == [{"base64": "vg=="}, "\\xbe", "text"]


def test_internal_topics_are_deleted_only_with_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(main.felice, ["topics", "delete", "__consumer_offsets", "-b", "127.0.0.1:1"]) == 1
    assert "--force" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--partitions", "-1"],
        ["consume", "t", "-n", "-3"],
        ["consume", "t", "--partition", "-1"],
    ],
)
def test_numbers_out_of_range_are_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(main.felice, words) == 2
    assert "is not in the range" in capsys.readouterr().err


def test_a_bug_keeps_its_traceback() -> None:
    def command(**_: object) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        main.run(command)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(main.felice, ["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in main.COMMANDS)


def test_an_unknown_version_of_a_frame_is_refused() -> None:
    with pytest.raises(Fault, match=r"^ApiVersions has the versions 0-\d+, got version 99$"):
        decode_response(bytes(16), 18, 99)
    with pytest.raises(Fault, match=r"^ApiVersions has the versions 0-\d+, got version 99$"):
        decode_request(bytes.fromhex("0012 0063 00000007 0002 6d65"))


@pytest.mark.parametrize("text", ["é", "a", "a b="])
def test_an_hmac_that_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(Fault, match="the HMAC is not base64"):
        parse_hmac(text)


def test_a_digit_that_is_no_number_is_refused_as_an_offset() -> None:
    with pytest.raises(Fault, match="'²' is incorrect"):
        parse_offset("²")
