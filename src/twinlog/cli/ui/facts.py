"""What somebody asks first who moves applications: do producers still write to the source, are both ends
equal, did groups resume on the target? Pure."""

import shlex
from dataclasses import dataclass

from twinlog.cli.source.partition_rows import shown_seconds
from twinlog.cli.status.producers import State, producers_of
from twinlog.cli.status.rows import FlowRow
from twinlog.cli.verdict.flows import partitions

_JUST_NOW_SECONDS = 2.0
GOOD, BAD, UNKNOWN, NEUTRAL = "good", "bad", "unknown", "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    question: str
    answer: str
    """A word or two."""
    detail: str
    tone: str = NEUTRAL
    """GOOD, BAD, UNKNOWN; NEUTRAL where an answer is neither."""
    command: str = ""
    """What changes or explains it."""


def facts(row: FlowRow) -> list[Fact]:
    source, _, target = row.flow.partition("->")
    return [_producers(row, source), _both_ends(row), _resumed(row, target)]


def _producers(row: FlowRow, source: str) -> Fact:
    question = f"Do producers still write to {source}?"
    found = producers_of(row)
    match found.state:
        case State.WRITE:
            return Fact(question=question, answer="Yes", detail=f"last record {_ago(found.seconds or 0)}")
        case State.SILENT if found.seconds is None:
            told = "no record since the source service started"
            return Fact(question=question, answer="No", detail=told)
        case State.SILENT:
            return Fact(question=question, answer="No", detail=f"last record {_ago(found.seconds or 0)}")
        case State.UNKNOWN:
            told = f"{source} was last read {_ago(found.seconds or 0)}"
        case State.UNTOLD:
            told = "the source service does not say"
    return Fact(question=question, answer="Unknown", detail=told, tone=UNKNOWN)


def _both_ends(row: FlowRow) -> Fact:
    question = "Are both ends equal?"
    verify = f"twinlog verify {shlex.quote(row.flow)}"
    equal, total = row.proofs.get("EQUAL", 0), sum(row.partitions.values())
    if different := row.proofs.get("DIFFERENT"):
        verb = "differs" if different == 1 else "differ"
        told = f"{partitions(different)} {verb} from the source"
        return Fact(question=question, answer="No", detail=told, tone=BAD, command=verify)
    if not row.proofs and row.records is None:
        told = "the source service does not say"
        return Fact(question=question, answer="Unknown", detail=told, tone=UNKNOWN)
    if not row.proofs:
        told = "nothing compares them: set twinlog.verify.interval.seconds"
        return Fact(question=question, answer="Not compared", detail=told, tone=UNKNOWN, command=verify)
    if equal < total:
        told = f"{equal:,} of {partitions(total)} compared, all equal" if equal else "being compared"
        return Fact(question=question, answer="Not all compared", detail=told, tone=UNKNOWN, command=verify)
    age = row.proven_age_seconds
    told = f"{partitions(total)} compared"
    if age is not None:
        told += " just now" if age < _JUST_NOW_SECONDS else f", the oldest {_ago(age)}"
    return Fact(question=question, answer="Yes", detail=told, tone=GOOD)


def _resumed(row: FlowRow, target: str) -> Fact:
    question = f"Have groups resumed on {target}?"
    if row.group_count is None:
        told = "the checkpoint service does not say"
        return Fact(question=question, answer="Unknown", detail=told, tone=UNKNOWN)
    if row.groups.get("TARGET_UNREADABLE", 0):
        return Fact(question=question, answer="Unknown", detail=f"{target} cannot be read", tone=UNKNOWN)
    active, total = row.groups.get("ACTIVE_ON_TARGET", 0), sum(row.groups.values())
    if not active:
        return Fact(question=question, answer="No", detail=f"no group has members on {target}")
    told = f"groups with members on {target} read {active:,} of {partitions(total)}"
    return Fact(question=question, answer="Yes" if active == total else "Some", detail=told)


def _ago(seconds: float) -> str:
    return "just now" if seconds < _JUST_NOW_SECONDS else f"{shown_seconds(seconds)} ago"
