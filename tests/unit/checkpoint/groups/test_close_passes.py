"""How soon the offsets of groups are read again."""

import pytest

from twinlog_checkpoint.groups.checkpointer import follows_closely
from twinlog_checkpoint.translation.translation import Translation, Verdict

PLACED = {Verdict.PRESERVED, Verdict.UP_TO_DATE, Verdict.EXACT}


@pytest.mark.parametrize(
    ("verdicts", "is_close"),
    [
        ((Verdict.PRESERVED, Verdict.NO_SYNC), True),
        ((Verdict.NO_SYNC, Verdict.NO_SYNC), True),
        ((Verdict.EXACT, Verdict.NO_SYNC), False),
        ((Verdict.EXACT, Verdict.PRESERVED), False),
        ((), False),
    ],
    ids=["preserved", "copies just begin", "translated", "in part", "no groups"],
)
def test_groups_are_read_again_soon_unless_some_are_translated(
    verdicts: tuple[Verdict, ...], is_close: bool
) -> None:
    told = [Translation(verdict=each, downstream_offset=7 if each in PLACED else None) for each in verdicts]
    assert follows_closely(told) is is_close
