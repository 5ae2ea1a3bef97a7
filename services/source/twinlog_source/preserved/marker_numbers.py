"""The numbers of markers that are written at the leader (docs/adr/0014). Pure.

A leader accepts a marker if neither its producer epoch nor its coordinator epoch is below that of the
producer's last marker in the partition. Invariant: of all requests for the offsets at the end of a log that
were sent on the same state of it, at most one is carried out, in whatever order they arrive.

    first request of an identity    a larger producer epoch; the larger it is, the smaller its second number
    every other request             the same producer epoch, and a second number above all first requests
"""

from dataclasses import dataclass

STEP = 64
"""Between two markers of an identity. First requests lie below it."""
_FIRST = STEP - 1
LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MarkerState:
    """What a leader knows of the last marker of a producer in a partition."""

    producer_epoch: int = -1
    """-1 = it knows none."""
    coordinator_epoch: int = 0


def first_number(state: MarkerState, producer_epoch: int) -> int | None:
    """The second number of the first marker that an identity writes to a partition: it goes alone. None =
    there is no number left.

    >>> first_number(MarkerState(4, 1000), 5), first_number(MarkerState(4, 1000), 6)
    (1062, 1061)
    """
    assert producer_epoch > state.producer_epoch, (producer_epoch, state)
    number = state.coordinator_epoch + _FIRST - 1 - (producer_epoch - state.producer_epoch - 1) % _FIRST
    return number if number <= LARGEST else None


def following_numbers(state: MarkerState, count: int) -> range | None:
    """The second numbers of the next markers of the identity that wrote the last one. None = there are not so
    many left.

    >>> list(following_numbers(MarkerState(5, 1062), 3))
    [1125, 1189, 1253]
    """
    begin = state.coordinator_epoch + _FIRST
    numbers = range(begin, begin + count * STEP, STEP)
    return numbers if not numbers or numbers[-1] <= LARGEST else None
