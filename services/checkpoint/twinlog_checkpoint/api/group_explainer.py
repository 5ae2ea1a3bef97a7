"""Gathers the facts from which `group_explanation` decides."""

from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.ports import GroupAdmin, GroupDescription
from twinlog.kafka.reasons import no_answer
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import ClusterStatus
from twinlog_checkpoint.api.group_explanation import Finding, GroupFacts, explain, is_translated
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.progress import GroupProgress


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
    away = {
        status.alias: f"{no_answer(status.alias, status.reason)}: {status.message}"
        for status in statuses
        if not status.reachable and status.as_of_ms
    }
    offsets_problem = ""
    problem = away.get(parts.flow.source) or away.get(parts.flow.target) or ""
    on_source = on_target = None
    offsets: dict[TopicPartition, str | None] | None = None
    if parts.flow.source not in away:
        try:
            on_source = await _described(parts.source, group)
            held = (await parts.source.group_offsets([group]))[group]
        except KafkaError as error:
            problem = str(error)
        else:
            if isinstance(held, KafkaError):
                offsets_problem = str(held)
            else:
                offsets = {tp: _refusal(parts, tp) for tp in held}
    if parts.flow.target not in away:
        try:
            on_target = await _described(parts.target, group)
        except KafkaError as error:
            problem = problem or str(error)
    directory, settings, tail = parts.checkpointer.groups, parts.entry.settings, parts.checkpointer.tail
    facts = GroupFacts(
        cluster_problem=problem,
        verdict=parts.entry.groups.judge_group(group),
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


async def _described(admin: GroupAdmin, group: str) -> GroupDescription:
    """Raises KafkaError."""
    answer = (await admin.describe_groups([group]))[group]
    if isinstance(answer, KafkaError):
        raise answer
    return answer
