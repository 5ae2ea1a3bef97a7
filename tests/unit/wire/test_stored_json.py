"""Stored documents are read by the annotations of their classes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from twinlog.wire.stored_json import read_fields


class Colour(StrEnum):
    RED = "RED"


@dataclass(frozen=True)
class Inner:
    parts: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    rate: float = 0.5
    until_ms: int | None = None
    colour: Colour = Colour.RED
    numbers: tuple[int, ...] = ()
    origins: Mapping[str, Inner] = field(default_factory=dict)


WHOLE = Outer(
    name="a",
    inner=Inner((("user", None), ("ip", "x"))),
    rate=2,
    until_ms=7,
    numbers=(1, 2),
    origins={"k": Inner(())},
)


def as_stored(value: Any) -> Any:
    """As JSON gives it back."""
    match value:
        case tuple() | list():
            return [as_stored(each) for each in value]
        case dict():
            return {key: as_stored(each) for key, each in value.items()}
    return value


def test_what_was_stored_is_read() -> None:
    assert read_fields(Outer, as_stored(asdict(WHOLE))) == WHOLE


def test_unknown_fields_are_dropped_and_missing_ones_have_their_defaults() -> None:
    read = read_fields(Outer, {"name": "a", "inner": {"parts": [], "new": 1}, "newer": 2})
    assert read == Outer(name="a", inner=Inner(()))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": 1},
        {"name": None},
        {"inner": None},
        {"inner": {"parts": [["user"]]}},
        {"inner": {"parts": "ab"}},
        {"until_ms": "7"},
        {"colour": "BLUE"},
        {"numbers": [1, "2"]},
        {"origins": ["k"]},
        {"rate": "x"},
    ],
)
def test_values_of_another_kind_are_refused(changed: Mapping[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        read_fields(Outer, {**as_stored(asdict(WHOLE)), **changed})
