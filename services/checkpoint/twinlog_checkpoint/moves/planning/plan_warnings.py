"""Warnings that an operator should read before a move. Pure."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.moves.record import Home
from twinlog_checkpoint.moves.planning.decision import CopyState
from twinlog_checkpoint.moves.planning.outcome import lacking, some
from twinlog_checkpoint.moves.planning.plan import THERE, ForeignRange, MoveAction, MovePartition
from twinlog_checkpoint.translation.translation import Verdict

_TOPICS_NAMED = 5


def plan_warnings(
    partitions: Sequence[MovePartition],
    *,
    from_alias: ClusterAlias,
    to_alias: ClusterAlias,
    away: str,
    fenced: bool,
    unsupported: Mapping[str, str] | None = None,
    changed: Collection[str] = (),
) -> list[str]:
    """Return the warnings. `away` says that the cluster does not answer that the groups leave, and is empty
    if it does; `unsupported` maps groups that cannot be translated to their type; `changed` are the topics of
    the flow's source whose records transforms change or drop."""
    warnings: list[str] = []
    if away and partitions:
        warnings.append(
            f"{away}: offsets come from the last checkpoints, and it is not known which"
            f" records of {from_alias} were not copied"
        )
    elif not away and not fenced:
        warnings.append(
            f"writers on {from_alias} are not fenced: records that they write from now on may not be copied"
        )
    for action, alias in (
        (MoveAction.SKIP_ACTIVE_BEFORE, from_alias),
        (MoveAction.SKIP_ACTIVE_THERE, to_alias),
    ):
        groups = sorted({entry.group for entry in partitions if entry.action is action})
        if groups:
            have = "it has" if len(groups) == 1 else "they have"
            warnings.append(f"{named(groups)}: not moved, because {have} members on {alias}")
    moving = (MoveAction.WRITE, MoveAction.ALREADY_THERE)
    floors = [
        entry
        for entry in partitions
        if entry.translation.verdict in (Verdict.FLOOR, Verdict.MAPPED) and entry.action in moving
    ]
    if floors:
        groups = sorted({entry.group for entry in floors})
        verdicts = ", ".join(sorted({entry.translation.verdict.value for entry in floors}))
        told = f"{verdicts}, {_offsets(len(floors))}"
        warnings.append(f"{named(groups)}: some records may be read again ({told})")
    warnings += _cut_and_past(partitions, from_alias=from_alias, to_alias=to_alias)
    for kind in sorted(set((unsupported or {}).values())):
        groups = sorted(group for group, its_kind in (unsupported or {}).items() if its_kind == kind)
        warnings.append(
            f"{named(groups)}: {kind} groups are not moved, because they commit no offset per partition: on"
            f" {to_alias} their consumers begin where their configuration says"
        )
    if changed:
        warnings.append(
            f"{some(sorted(changed))}: transforms change or drop records on the way, so {to_alias} does not"
            f" have what {from_alias} has"
        )
    by_rule = [entry for entry in partitions if entry.translation.verdict is Verdict.NOT_REPLICATED]
    if by_rule:
        groups = sorted({entry.group for entry in by_rule})
        topics = sorted({entry.from_partition.topic for entry in by_rule})
        warnings.append(
            f"{named(groups)}: {_offsets(len(by_rule))} on topics that no flow copies, which stay on"
            f" {from_alias}: {some(topics)}"
        )
    nowhere = lacking(partitions)
    if nowhere:
        groups = sorted({entry.group for entry in nowhere})
        warnings.append(
            f"{named(groups)}: {_offsets(len(nowhere))} without a translation: on {to_alias} their consumers"
            " begin where auto.offset.reset says, and a run is not complete unless you accept that"
            " (--accept-loss)"
        )
    return warnings


def _cut_and_past(
    partitions: Sequence[MovePartition], *, from_alias: ClusterAlias, to_alias: ClusterAlias
) -> list[str]:
    """Name the groups whose place is before the log there, or past the end of the one that they leave."""
    cut = [
        entry
        for entry in partitions
        if entry.translation.verdict is Verdict.BEFORE_START
        and entry.action in THERE
        and entry.continues_at == entry.to_offset
    ]
    told = []
    if cut:
        groups = sorted({entry.group for entry in cut})
        told.append(
            f"{named(groups)}: {_offsets(len(cut))} before the first record on {to_alias}, which is read"
            " next: what was not read before it is skipped (BEFORE_START)"
        )
    past = [entry for entry in partitions if entry.past_end is not None and entry.action in THERE]
    told += [
        f"group {entry.group}: its offset {entry.from_offset} is past the end {entry.past_end} of"
        f" {entry.from_partition} on {from_alias}, which lost records or was created again; on {to_alias} it"
        f" continues at {entry.continues_at}, and reads what is behind"
        for entry in past[:_TOPICS_NAMED]
    ]
    if len(past) > _TOPICS_NAMED:
        told.append(f"{_offsets(len(past) - _TOPICS_NAMED)} more past the end of their logs on {from_alias}")
    return told


def ahead_told(
    partitions: Iterable[MovePartition], *, from_alias: ClusterAlias, to_alias: ClusterAlias
) -> list[str]:
    """Name the groups that have committed further where they move to, and not by a move: perhaps their
    consumers were started there too early, at the end."""
    ahead = [
        entry
        for entry in partitions
        if entry.action is MoveAction.KEEP_AHEAD and entry.translation.is_certain
    ]
    groups = sorted({entry.group for entry in ahead})
    told = f"{_offsets(len(ahead))} on {to_alias} {'is' if len(ahead) == 1 else 'are'} ahead of {from_alias}"
    left = "never moved back by a move: records between may stay unread"
    return [f"{named(groups)}: {told}, and {left}"] if ahead else []


def unlisted_offsets_told(
    partitions: Iterable[MovePartition],
    homes: Mapping[str, Home],
    *,
    from_alias: ClusterAlias,
    to_alias: ClusterAlias,
) -> list[str]:
    """Name the offsets with which the last move found groups on the cluster to which they move back, and of
    which they have none on the other one, so that no line of the plan is about them. `homes`: of the groups
    that it moved."""
    shown = {(entry.group, entry.to_partition) for entry in partitions}
    left = [
        (group, partition)
        for group, home in sorted(homes.items())
        for partition in sorted(home.stood_at)
        if (group, partition) not in shown
    ]
    if not left:
        return []
    told = f"{_offsets(len(left))} on {to_alias} without one on {from_alias}"
    names = some(sorted({str(partition) for _, partition in left}))
    return [f"{named(sorted({group for group, _ in left}))}: {told}, so nothing moves there: {names}"]


def entered_foreign_told(
    partitions: Iterable[MovePartition],
    copies: Mapping[TopicPartition, CopyState],
    *,
    to_alias: ClusterAlias,
) -> list[str]:
    """Say of the records that other producers wrote into the copies to which groups move, which groups read
    them there and which begin behind them. `copies`: by partition of the cluster that the groups leave."""
    told = []
    moved = sorted(
        (entry for entry in partitions if entry.action in THERE and entry.continues_at is not None),
        key=lambda entry: (entry.from_partition, entry.group),
    )
    for partition, entries in groupby(moved, key=lambda entry: entry.from_partition):
        copy = copies.get(partition)
        if copy is None or not copy.foreign:
            continue
        of_partition = list(entries)
        end = max(each.end for each in copy.foreign)
        read = [each.group for each in of_partition if (each.continues_at or 0) < end]
        passed = [each.group for each in of_partition if each.group not in read]
        count = sum(each.records for each in copy.foreign)
        records = "1 record" if count == 1 else f"{count} records"
        who = [f"{named(read)} will read those behind its place"] if read else []
        who += [f"{named(passed)} will read none: they lie before its place"] if passed else []
        told.append(
            f"{records} in {of_partition[0].to_partition} on {to_alias} are of other producers (FOREIGN):"
            f" {'; '.join(who)}"
        )
    if len(told) > _TOPICS_NAMED:
        told[_TOPICS_NAMED:] = [f"the same in {len(told) - _TOPICS_NAMED} more partitions"]
    return told


def foreign_told(tails: Sequence[ForeignRange], flow: Flow) -> list[str]:
    """Name the records that other producers wrote into the copies of a flow, by topic."""
    told = [
        f"{_counted(of_topic)} in {topic} are only on {flow.target}: other producers wrote into the copy"
        f" (FOREIGN), and no flow copies them to {flow.source}. Groups that have read them lose nothing;"
        f" `twinlog verify {shlex.quote(str(flow))} --topic {of_topic[0].origin.topic}` names them"
        for topic, of_topic in _by_topic(tail for tail in tails if tail.records)
    ]
    if len(told) > _TOPICS_NAMED:
        told[_TOPICS_NAMED:] = [f"the same in {len(told) - _TOPICS_NAMED} more topics"]
    unknown = [tail for tail in tails if tail.records is None]
    if unknown:
        names = some([str(tail.partition) for tail in unknown])
        told.append(
            f"whether other producers wrote into {names} (FOREIGN) is not known: {unknown[0].message}"
        )
    return told


def _counted(tails: Iterable[ForeignRange]) -> str:
    count = sum(tail.records or 0 for tail in tails)
    return f"{count} record" if count == 1 else f"{count} records"


def _by_topic(tails: Iterable[ForeignRange]) -> Iterable[tuple[str, list[ForeignRange]]]:
    """`tails` are sorted."""
    for topic, of_topic in groupby(tails, key=lambda tail: tail.partition.topic):
        yield topic, list(of_topic)


def _offsets(count: int) -> str:
    return "1 offset" if count == 1 else f"{count} offsets"


def named(groups: Sequence[str]) -> str:
    """The groups as the subject of a sentence."""
    return f"group{'s' if len(groups) > 1 else ''} {some(groups)}"
