"""Up to where a translated copy has the source's offsets. Pure.

It had them until it became translated. Where either log lost its tail since then, other records are at those
offsets now, so an offset from there on is not the same any more.
"""

from collections.abc import Iterable

from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.rows import Shortened

_SOURCE_LOST = "TRUNCATION"


def translated_since(copy: CopyFact, losses: Iterable[Shortened], gaps: Iterable[Gap]) -> int:
    """From which source offset on a translated copy has offsets of its own. `losses`: of the target, not
    recorded yet; `gaps`: the ledger of the flow."""
    since = copy.since
    if copy.preserved or since <= 0:
        return since
    lost = [min(since, loss.end_offset) for loss in losses]
    cut = [gap.from_offset for gap in gaps if gap.partition == copy.partition and gap.reason == _SOURCE_LOST]
    return min([since, *lost, *cut])
