"""How the translation of the groups of a flow goes."""

from dataclasses import dataclass

from twinlog.model import Flow
from twinlog_checkpoint.flow.parts import FlowParts


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowProgress:
    """The state of the translation of one flow's groups."""

    flow: Flow
    ready: bool
    """The first pass over the offset syncs is done."""
    blocker: str
    """Why groups cannot be translated now; empty when they can."""
    confirmed_ms: int | None
    """When the last complete pass over all groups ended."""
    blocker_reason: str = ""
    deletions_held: tuple[str, str] = ("", "")
    """Why groups that no longer exist on the source are not deleted on the target: reason and message. Empty
    when they may be deleted."""
    offsets_held: tuple[str, str] = ("", "")
    """Why no offsets are committed on the target for some groups: reason and message. Empty when nothing
    prevents it."""
    groups_listed_ms: int | None = None
    """When the groups were last listed; None = not yet."""
    next_listing_ms: int | None = None
    """When new groups are found; None = not known, or never."""
    listing_failed: tuple[str, str] = ("", "")
    """Why the last list failed: reason and message; empty when it did not."""


def flow_progress(parts: FlowParts) -> FlowProgress:
    """The current progress of a flow."""
    failed = parts.checkpointer.groups.problem
    return FlowProgress(
        flow=parts.flow,
        ready=parts.syncs_are_read,
        blocker=parts.blocker,
        confirmed_ms=parts.checkpointer.table.confirmed_ms,
        blocker_reason=parts.blocker_reason,
        deletions_held=parts.checkpointer.table.deletions_held,
        offsets_held=parts.checkpointer.table.offsets_held,
        groups_listed_ms=parts.checkpointer.groups.listed_at_ms,
        next_listing_ms=parts.checkpointer.next_listing_ms,
        listing_failed=("", "") if failed is None else (failed.reason, str(failed)),
    )
