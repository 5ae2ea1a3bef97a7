"""The demo's records: orders of an online shop, each derived from its number. Pure."""

import json
import random
from dataclasses import dataclass

CITIES = ("Lisbon", "Aarhus", "Kraków", "Tromsø", "Valletta", "Ghent", "Łódź", "Málaga")
ITEMS = ("espresso beans", "teapot", "notebook", "raincoat", "bicycle bell", "desk lamp", "walnut cake")
STATUSES = ("placed", "paid", "packed", "shipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOrder:
    number: int
    key: bytes
    value: bytes | None
    """None: the customer asked to be forgotten (a tombstone)."""
    headers: tuple[tuple[bytes, bytes | None], ...]


def make_order(number: int) -> DemoOrder:
    """The order with this number: always the same. Every 97th is a tombstone, every 50th is large."""
    dice = random.Random(number)  # noqa: S311 - sample data
    key = f"customer-{dice.randrange(500):03d}".encode()
    headers = (
        (b"trace", f"{dice.getrandbits(64):016x}".encode()),
        (b"source", b"web" if number % 3 else None),
    )
    if number % 97 == 96:
        return DemoOrder(number=number, key=key, value=None, headers=headers)
    lines = [
        {"item": dice.choice(ITEMS), "quantity": dice.randint(1, 4), "cents": dice.randint(199, 9_999)}
        for _ in range(40 if number % 50 == 49 else dice.randint(1, 4))
    ]
    document = {
        "order": number,
        "status": dice.choice(STATUSES),
        "city": dice.choice(CITIES),
        "express": dice.random() < 0.2,
        "lines": lines,
        "total_cents": sum(line["quantity"] * line["cents"] for line in lines),  # type: ignore[operator]
    }
    return DemoOrder(
        number=number, key=key, value=json.dumps(document, ensure_ascii=False).encode(), headers=headers
    )
