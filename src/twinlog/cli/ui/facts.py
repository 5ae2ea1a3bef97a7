"""What somebody asks first who moves applications: do producers still write to the source, are both ends
equal, did groups resume on the target? Pure."""

from dataclasses import dataclass

from twinlog.cli.status.producers import State, producers_of
from twinlog.cli.status.rows import FlowRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    message: str
    verdict: str = ""
    """As of a check: GO, WAIT or NO_GO; empty where the fact is neither good nor bad."""


def facts(row: FlowRow) -> list[Fact]:
    source, _, target = row.flow.partition("->")
    return [
        Fact(name=f"producers on {source}", message=_producers(row)),
        _both_ends(row),
        Fact(name=f"groups on {target}", message=_resumed(row, target)),
    ]


def _producers(row: FlowRow) -> str:
    found = producers_of(row)
    match found.state:
        case State.WRITE:
            return f"write: the last records came {found.seconds or 0:,.0f} s ago"
        case State.SILENT:
            if found.seconds is None:
                return "silent since the source service started"
            return f"silent for {found.seconds:,.0f} s"
        case State.UNKNOWN:
            return f"not known: the ends of the source's logs were read {found.seconds or 0:,.0f} s ago"
        case State.UNTOLD:
            return "not known: no service tells of the source's logs"


def _both_ends(row: FlowRow) -> Fact:
    name = "both ends"
    proven = row.proofs.get("EQUAL", 0)
    if different := row.proofs.get("DIFFERENT"):
        count = "1 partition" if different == 1 else f"{different} partitions"
        return Fact(name=name, verdict="NO_GO", message=f"differ in {count}: `twinlog verify`")
    if not proven:
        told = "compared by nobody: `twinlog verify`, or set `twinlog.verify.interval.seconds`"
        return Fact(name=name, message=told if not row.proofs else "not compared as a whole yet")
    total = sum(row.partitions.values())
    age = "" if row.proven_age_seconds is None else f", {row.proven_age_seconds:,.0f} s ago or later"
    return Fact(name=name, message=f"equal in {proven} of {total} partitions{age}")


def _resumed(row: FlowRow, target: str) -> str:
    if row.group_count is None:
        return "not known: no checkpoint service tells of this flow"
    if unread := row.groups.get("TARGET_UNREADABLE", 0):
        return f"not known of {unread} partitions: {target} cannot be read"
    active, total = row.groups.get("ACTIVE_ON_TARGET", 0), sum(row.groups.values())
    if not active:
        return f"none has members on {target}"
    return f"resumed: {active} of {total} partitions are of groups with members on {target}"
