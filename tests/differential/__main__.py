"""`python -m differential`: random operations on Apache Kafka and Felice; exits with 1 if answers differ."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import click

from conformance.secured import secured_felice, secured_kafka
from differential import accepted, brokers
from differential.address import Address
from differential.compare import Comparison, Divergence
from differential.generator import random_operations
from differential.operation import Operation
from differential.plain import Plain
from differential.rights import random_operations_of_users

RUN_LENGTH = 40


@click.command()
@click.option("--seed", default=1, show_default=True)
@click.option("--operations", default=3000, show_default=True, help="How many are compared, about.")
@click.option(
    "--rights", is_flag=True, help="With an authorizer on both: several users, ACLs, quotas, SCRAM users."
)
@click.option("--kafka", "kafka_address", help="A running Apache Kafka with the settings of `brokers.py`.")
@click.option("--felice", "felice_address", help="A running Felice with the same.")
@click.option(
    "--replay",
    type=click.Path(exists=True, path_type=Path),
    help="A file with the operations of a run, as they were printed: one on each line.",
)
@click.option("--minimise/--no-minimise", default=True, show_default=True)
def main(
    seed: int,
    operations: int,
    rights: bool,
    kafka_address: str | None,
    felice_address: str | None,
    replay: Path | None,
    minimise: bool,
) -> None:
    """Compare Felice with Apache Kafka over random operations."""
    with ExitStack() as stack:
        kafka, felice = (
            [stack.enter_context(brokers.with_authorizer(start)) for start in (secured_kafka, secured_felice)]
            if rights
            else [
                _address(stack, kafka_address, brokers.apache_kafka),
                _address(stack, felice_address, brokers.felice),
            ]
        )
        comparison = Comparison(kafka, felice, accepted.load())
        if replay is not None:
            sys.exit(repeat(comparison, replay))
        generate = random_operations_of_users if rights else random_operations
        sys.exit(run(comparison, seed, operations, minimise, generate))


def _address(
    stack: ExitStack, running: str | None, start: Callable[[], AbstractContextManager[Address]]
) -> Address:
    return Address(running) if running is not None else stack.enter_context(start())


def repeat(comparison: Comparison, replay: Path) -> int:
    sent = [Operation.from_json(line) for line in replay.read_text().splitlines() if line.startswith("{")]
    found = comparison.confirm(sent)
    click.echo("no difference" if found is None else describe(found, sent))
    return 0 if found is None else 1


def run(
    comparison: Comparison,
    seed: int,
    operations: int,
    minimise: bool,
    generate: Callable[[str, int], Iterable[Operation]],
) -> int:
    begun, compared, runs = time.monotonic(), 0, 0
    found: dict[str, int] = {}
    accepted_count: Counter[str] = Counter()
    while compared < operations:
        sent = list(generate(f"{seed}/{runs}", RUN_LENGTH))
        runs += 1
        played = comparison.play(sent)
        compared += played.answered
        accepted_count.update(row.reason for row in played.accepted)
        first = played.divergence
        if first is None:
            continue
        if first.signature in found:
            found[first.signature] += 1
            continue
        confirmed = comparison.confirm(sent[: first.index + 1])
        if confirmed is None:
            continue
        is_new = confirmed.signature not in found
        found[confirmed.signature] = found.get(confirmed.signature, 0) + 1
        if is_new:
            kept = sent[: confirmed.index + 1]
            if minimise:
                kept = comparison.minimise(kept, confirmed.signature)
                confirmed = comparison.confirm(kept) or confirmed
            click.echo(f"\nrun {seed}/{runs - 1}\n{describe(confirmed, kept)}")
    click.echo(f"\n{compared} operations in {runs} runs, {time.monotonic() - begun:.0f} s")
    for reason, count in accepted_count.most_common():
        click.echo(f"  accepted {count} times: {reason}")
    for signature, count in sorted(found.items(), key=lambda entry: -entry[1]):
        click.echo(f"  DIFFERENT {count} times: {signature}")
    return 1 if found else 0


def describe(found: Divergence, sent: list[Operation]) -> str:
    lines = [operation.to_json() for operation in sent]
    for path, kafka, felice in found.found[:6]:
        lines.append(f"  {path}: Kafka {_short(kafka)}, Felice {_short(felice)}")
    return "\n".join(lines)


def _short(value: Plain) -> str:
    text = json.dumps(value)
    return text if len(text) <= 400 else text[:397] + "..."


if __name__ == "__main__":
    main()
