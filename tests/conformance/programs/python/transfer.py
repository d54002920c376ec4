"""Payments between accounts, as a ledger of two entries each and as balances: a program for `felice run`."""

from typing import Any

from felice.streams import App


def entries_of(_: Any, payment: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    number, amount = payment["id"], payment["amount"]
    return [
        (payment["from"], {"id": number, "amount": -amount}),
        (payment["to"], {"id": number, "amount": amount}),
    ]


def booked(_: str, entry: dict[str, Any], balance: int) -> int:
    return balance + int(entry["amount"])


app = App("transfer")
entries = app.stream("payments").flat_map(entries_of)
entries.to("ledger")
entries.group_by_key().aggregate(lambda: 0, booked, name="balances").to("balances")
