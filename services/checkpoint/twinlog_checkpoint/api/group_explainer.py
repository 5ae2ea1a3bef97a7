"""Gathers the facts from which `group_explanation` decides.

Why a group is translated or not: checks the rules in order. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.errors import KafkaError, required
from twinlog.filters import FilterOutcome, FilterVerdict
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import GroupAdmin, GroupDescription
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import ClusterStatus
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.directory import TRANSLATABLE_TYPES
from twinlog_checkpoint.groups.progress import WRITABLE_STATES, GroupProgress

ANSWER_SECONDS = 10.0
"""Whoever asks waits no longer for a broker that may be dead."""


class Rule(StrEnum):
    CLUSTER = "CLUSTER"
    """Both clusters answer."""
    FILTER = "FILTER"
    """groups, groups.exclude."""
    EXISTS = "EXISTS"
    TYPE = "TYPE"
    OFFSETS = "OFFSETS"
    """It has committed an offset on a topic of the flow."""
    SYNCS = "SYNCS"
    """The offset syncs have been read."""
    GROUP_SYNC = "GROUP_SYNC"
    """Its offsets are committed on the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    rule: Rule
    passed: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What is known of a group; None where a cluster did not answer."""

    cluster_problem: str
    """Which cluster does not answer, and why; empty when both do."""
    verdict: FilterVerdict
    state_on_source: str | None
    """DEAD = the group does not exist."""
    group_type: str
    offsets: Mapping[TopicPartition, str | None] | None
    """Each committed partition with the rule that excludes its topic; None when the topic is included."""
    offsets_problem: str
    """Why the offsets cannot be read; empty when they can."""
    listed: bool
    """The service has already listed the group."""
    refresh_interval_seconds: float
    syncs_are_read: bool
    syncs_problem: str
    group_sync_enabled: bool
    state_on_target: str | None
    group_sync_held: str = ""
    """Why no offsets are committed for the group; empty when nothing prevents it."""
    changed_keys: Collection[str] = ()
    """The rules that were changed live, and are not the file's."""


def explain(facts: GroupFacts) -> list[Finding]:
    """Return the findings up to the first one that excludes the group."""
    findings: list[Finding] = []
    for finding in (
        _cluster(facts),
        _filter(facts.verdict, facts.changed_keys),
        _exists(facts),
        _type(facts),
        _offsets(facts),
        _syncs(facts),
    ):
        findings.append(finding)
        if not finding.passed:
            return findings
    findings.append(_group_sync(facts))
    return findings


def is_translated(findings: list[Finding]) -> bool:
    """Whether no finding excludes the group; the last one (commit on the target) does not count."""
    return all(finding.passed for finding in findings if finding.rule is not Rule.GROUP_SYNC)


def _cluster(facts: GroupFacts) -> Finding:
    problem = facts.cluster_problem
    return Finding(rule=Rule.CLUSTER, passed=not problem, message=problem or "both clusters answer")


def _filter(verdict: FilterVerdict, changed_keys: Collection[str]) -> Finding:
    if verdict.outcome is FilterOutcome.INCLUDED:
        message = f"{verdict.key} includes it by {verdict.pattern!r}"
    elif verdict.outcome is FilterOutcome.EXCLUDED:
        message = f"{verdict.key} excludes it by {verdict.pattern!r}"
    else:
        message = f"no pattern of {verdict.key} matches it"
    changed = sorted(key for key in changed_keys if key in ("groups", "groups.exclude"))
    if changed:
        message += f" ({' and '.join(changed)}: changed live, not the file's; `twinlog rules diff`)"
    return Finding(rule=Rule.FILTER, passed=verdict.included, message=message)


def _exists(facts: GroupFacts) -> Finding:
    if facts.state_on_source == "DEAD":
        return Finding(rule=Rule.EXISTS, passed=False, message="the source has no such group")
    state = facts.state_on_source or "unknown"
    return Finding(rule=Rule.EXISTS, passed=True, message=f"its state on the source is {state}")


def _type(facts: GroupFacts) -> Finding:
    passed = facts.group_type in TRANSLATABLE_TYPES
    message = f"it is a {facts.group_type} group"
    if not passed:
        message += ", which commits no offset per partition that could be translated"
    return Finding(rule=Rule.TYPE, passed=passed, message=message)


def _offsets(facts: GroupFacts) -> Finding:
    if facts.offsets is None:
        message = f"its offsets cannot be read: {facts.offsets_problem}"
        return Finding(rule=Rule.OFFSETS, passed=False, message=message)
    kept = [partition for partition, rule in facts.offsets.items() if rule is None]
    if not facts.offsets:
        return Finding(rule=Rule.OFFSETS, passed=False, message="it has committed no offset")
    if not kept:
        partition, rule = next(iter(sorted(facts.offsets.items(), key=lambda item: item[0])))
        message = f"the flow copies none of its topics; {partition.topic}: {rule}"
        return Finding(rule=Rule.OFFSETS, passed=False, message=message)
    message = f"{len(kept)} of its {len(facts.offsets)} committed partitions are on topics of the flow"
    if not facts.listed:
        message += (
            f"; it is found within {facts.refresh_interval_seconds:g} s (refresh.groups.interval.seconds)"
        )
    return Finding(rule=Rule.OFFSETS, passed=True, message=message)


def _syncs(facts: GroupFacts) -> Finding:
    if facts.syncs_are_read:
        return Finding(rule=Rule.SYNCS, passed=True, message="the offset syncs are read")
    message = facts.syncs_problem or "the offset syncs are still being read"
    return Finding(rule=Rule.SYNCS, passed=False, message=message)


def _group_sync(facts: GroupFacts) -> Finding:
    if not facts.group_sync_enabled:
        message = (
            "sync.group.offsets.enabled is false or its interval negative: checkpoints are written, and no"
            " offsets are committed"
        )
        return Finding(rule=Rule.GROUP_SYNC, passed=False, message=message)
    if facts.state_on_target is not None and facts.state_on_target not in WRITABLE_STATES:
        message = f"it is {facts.state_on_target} on the target: an active group owns its offsets"
        return Finding(rule=Rule.GROUP_SYNC, passed=False, message=message)
    if facts.group_sync_held:
        message = f"no offsets are committed for it: {facts.group_sync_held}"
        return Finding(rule=Rule.GROUP_SYNC, passed=False, message=message)
    return Finding(
        rule=Rule.GROUP_SYNC,
        passed=True,
        message="its offsets are committed on the target; they are never set back",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExplanation:
    flow: Flow
    group: str
    translated: bool
    findings: list[Finding]
    rows: list[GroupProgress]
    state_on_source: str
    state_on_target: str


async def explain_group(parts: FlowParts, group: str, statuses: Iterable[ClusterStatus]) -> GroupExplanation:
    """Ask both clusters about the group. A cluster that does not answer is a finding, not an error."""
    statuses = tuple(statuses)
    outages = {status.alias: status.outage.judged(status.alias).words for status in statuses if status.outage}

    def told(error: KafkaError) -> str:
        """Also which brokers to start."""
        outage = outages.get(error.metadata.get("cluster", ""))
        return f"{error}: {outage}" if outage else str(error)

    away = {status.alias: outages[status.alias] for status in statuses if status.outage.reason}
    offsets_problem = ""
    doubt = parts.duty.refusal()
    problem = away.get(parts.flow.source) or away.get(parts.flow.target) or ""
    if not problem and isinstance(doubt, KafkaError) and "cluster" in doubt.metadata:
        problem = told(doubt)
    on_source = on_target = None
    offsets: dict[TopicPartition, str | None] | None = None
    if parts.flow.source not in away:
        try:
            on_source = await _described(parts.source, group, parts.flow.source)
            held = (await parts.source.group_offsets([group]))[group]
        except KafkaError as error:
            problem = problem or told(error)
        else:
            if isinstance(held, KafkaError) and held.retriable:
                problem = problem or told(held)
            elif isinstance(held, KafkaError):
                offsets_problem = str(held)
            else:
                offsets = {tp: _refusal(parts, tp) for tp in held}
    if parts.flow.target not in away:
        try:
            on_target = await _described(parts.target, group, parts.flow.target)
        except KafkaError as error:
            problem = problem or told(error)
            if error.retriable:
                parts.checkpointer.table.on_unreadable(group, error)
    directory, settings, tail = parts.checkpointer.groups, parts.entry.settings, parts.checkpointer.tail
    facts = GroupFacts(
        cluster_problem=problem,
        verdict=parts.entry.groups.judge(group),
        state_on_source=on_source.state if on_source is not None else None,
        group_type=directory.unsupported.get(group) or (on_source.group_type if on_source else "classic"),
        offsets=offsets,
        offsets_problem=offsets_problem,
        listed=group in directory.groups,
        refresh_interval_seconds=settings.refresh_groups_interval_seconds,
        syncs_are_read=parts.syncs_are_read,
        syncs_problem=tail.problem,
        group_sync_enabled=settings.sync_group_offsets_enabled,
        group_sync_held=parts.checkpointer.table.hold.why_of(group),
        changed_keys=parts.rules.changed_keys,
        state_on_target=on_target.state if on_target is not None else None,
    )
    findings = explain(facts)
    return GroupExplanation(
        flow=parts.flow,
        group=group,
        translated=is_translated(findings),
        findings=findings,
        rows=parts.checkpointer.table.rows(group),
        state_on_source=facts.state_on_source or "",
        state_on_target=facts.state_on_target or "",
    )


def _refusal(parts: FlowParts, partition: TopicPartition) -> str | None:
    """Why no offset of a partition is translated, whichever offset; None when it is."""
    rule = parts.checkpointer.topics.refusal(partition.topic)
    return rule or parts.shared.why(parts.copy_of(partition).topic) or None


async def _described(admin: GroupAdmin, group: str, alias: str) -> GroupDescription:
    """Raises KafkaError."""
    async with deadline(ANSWER_SECONDS, f"describe group {group}", alias=alias):
        return required((await admin.describe_groups([group]))[group])
