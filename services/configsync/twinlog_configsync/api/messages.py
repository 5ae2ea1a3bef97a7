"""Converts domain values into protobuf messages of the API."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.errors import KafkaError
from twinlog.model import Flow
from twinlog.policy.expected_offsets import ExpectedOffsets
from twinlog.service.api_values import cluster_message, flow_message, message_of
from twinlog.service.clusters import ClusterStatus
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_configsync.access.acl_plan import AclEntry
from twinlog_configsync.model import actions
from twinlog_configsync.model.observation import Observation, Problem, World, is_absent
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.explain import Explanation
from twinlog_configsync.planning.flow_status import FlowStatus, ScopeStatus
from twinlog_configsync.planning.plan import Plan


def topic_message(flow: Flow, entry: ReplicatedTopic) -> pb2.ReplicatedTopic:
    return message_of(
        pb2.ReplicatedTopic,
        entry,
        flow=flow_message(flow),
        target_max_message_bytes=entry.limits.max_message_bytes,
        target_compression_type=entry.limits.compression_type,
        target_timestamp_type=entry.limits.timestamp_type,
    )


MOST_CYCLES: Final = 100


def flow_status_message(
    flow: Flow,
    status: FlowStatus,
    entries: Iterable[ReplicatedTopic],
    cycles: Mapping[str, str],
    clusters: Iterable[ClusterStatus],
) -> pb2.FlowStatus:
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.state.value] = counts.get(entry.state.value, 0) + 1
    return message_of(
        pb2.FlowStatus,
        status,
        flow=flow_message(flow),
        topics_by_state=counts,
        cycles=dict(sorted(cycles.items())[:MOST_CYCLES]),
        clusters=[cluster_message(cluster) for cluster in clusters],
        scopes=[scope_message(scope, status.scopes[scope]) for scope in sorted(status.scopes)],
    )


def scope_message(scope: Scope, status: ScopeStatus) -> pb2.ScopeStatus:
    return message_of(pb2.ScopeStatus, status, scope=scope)


# Converts plans, outcomes, explanations and ACLs into protobuf messages of the API.


# What a plan does not know: parts of a flow, or topics of a part, that could not be read. Pure.

_NAMED: Final = 5


def unread(world: World, scopes: Collection[Scope]) -> dict[Scope, Problem]:
    """Why parts of a flow could not be read, or have nothing to do; by part.

    Topics and configs are read one by one, and a plan has no action for one that could not be read.
    """
    whole = {scope: problem for scope in sorted(scopes) if (problem := world.problem(scope)) is not None}
    single = {
        Scope.TOPICS: _problem("topics", _hidden_topics(world.topics)),
        Scope.CONFIGS: _problem("configs of", _hidden_configs(world.topics)),
    }
    return whole | {scope: each for scope, each in single.items() if each is not None and scope in scopes}


def _hidden_topics(observation: Observation) -> dict[str, KafkaError]:
    """By the name on its cluster. The counterpart of a topic that cannot be seen does not matter."""
    hidden: dict[str, KafkaError] = {}
    for pair in observation.pairs.values():
        if isinstance(pair.source, KafkaError):
            if not is_absent(pair.source):
                hidden[pair.source_topic] = pair.source
        elif isinstance(pair.target, KafkaError) and not is_absent(pair.target):
            hidden[pair.target_topic] = pair.target
    return hidden


def _hidden_configs(observation: Observation) -> dict[str, KafkaError]:
    """Of topics that the source shows."""
    hidden: dict[str, KafkaError] = {}
    for pair in observation.pairs.values():
        if isinstance(pair.source, KafkaError):
            continue
        if isinstance(pair.source_configs, KafkaError):
            hidden[pair.source_topic] = pair.source_configs
        if isinstance(pair.target_configs, KafkaError):
            hidden[pair.target_topic] = pair.target_configs
    return hidden


def _problem(what: str, hidden: Mapping[str, KafkaError]) -> Problem | None:
    if not hidden:
        return None
    names = sorted(hidden)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    first = hidden[names[0]]
    message = f"{what} {', '.join(names[:_NAMED])}{more} cannot be read: {first}"
    return Problem(reason=first.reason, message=message)


def plan_head_message(plan: Plan, world: World, *, rules: Iterable[str] = ()) -> pb2.Plan:
    """A plan without its actions. `rules`: those that are not the file's, as sentences."""
    return pb2.Plan(
        flow=flow_message(plan.flow),
        plan_id=plan.plan_id,
        scopes=sorted(plan.scopes),
        change_count=len(plan.changes),
        problems=[
            pb2.ScopeStatus(scope=scope, reason=problem.reason, message=problem.message)
            for scope, problem in sorted(unread(world, plan.scopes).items())
        ],
        rules=rules,
    )


def outcome_message(outcome: actions.Applied) -> pb2.ApplySyncResponse:
    return pb2.ApplySyncResponse(
        applied=[action_message(action) for action in outcome.applied],
        refused=[
            pb2.RefusedAction(
                action=action_message(refusal.action),
                reason=refusal.error.reason,
                message=str(refusal.error),
            )
            for refusal in outcome.refused
        ],
    )


def planned_message(
    action: actions.Action, offsets: Mapping[str, ExpectedOffsets], refusal: KafkaError | None
) -> pb2.PlannedAction:
    """An action of a plan, with the expected offsets of the copies that it creates, by source topic, and why
    the target refused it."""
    message = action_message(action)
    if refusal is not None:
        message.refused_reason, message.refused_message = refusal.reason, str(refusal)
    if isinstance(action, actions.CreateTopic) and (expected := offsets.get(action.source_topic)) is not None:
        message.offsets.CopyFrom(message_of(pb2.ExpectedOffsets, expected))
    return message


_KINDS: Final = {
    actions.CreateTopic: pb2.ACTION_KIND_CREATE_TOPIC,
    actions.GrowPartitions: pb2.ACTION_KIND_GROW_PARTITIONS,
    actions.DeleteTopic: pb2.ACTION_KIND_DELETE_TOPIC,
    actions.SetConfig: pb2.ACTION_KIND_SET_CONFIG,
    actions.DeleteConfig: pb2.ACTION_KIND_DELETE_CONFIG,
    actions.CreateAcl: pb2.ACTION_KIND_CREATE_ACL,
    actions.DeleteAcl: pb2.ACTION_KIND_DELETE_ACL,
    actions.SetQuota: pb2.ACTION_KIND_SET_QUOTA,
    actions.DeleteQuota: pb2.ACTION_KIND_DELETE_QUOTA,
}
"""All others do nothing, on purpose."""


def action_message(action: actions.Action) -> pb2.PlannedAction:
    message = pb2.PlannedAction(
        rule=action.rule,
        text=str(action),
        scope=actions.scope_of(action),
        drift=actions.is_drift(action),
        kind=_KINDS.get(type(action), pb2.ACTION_KIND_SKIP),
    )
    match action:
        case actions.CreateAcl() | actions.DeleteAcl() | actions.SkipAcl():
            message.acl.CopyFrom(message_of(pb2.AclBinding, action.binding))
        case actions.SkipUser():
            message.name = action.user
        case actions.SetQuota() | actions.DeleteQuota() | actions.SkipQuota():
            _fill_quota(message, action)
        case _:
            _fill_topic(message, action)
    return message


def _fill_quota(
    message: pb2.PlannedAction, action: actions.SetQuota | actions.DeleteQuota | actions.SkipQuota
) -> None:
    message.entity, message.name = actions.entity_text(action.entity), action.key
    if isinstance(action, actions.SetQuota):
        message.after = actions.number_text(action.value)
    if not isinstance(action, actions.SkipQuota) and action.before is not None:
        message.before = actions.number_text(action.before)


def _fill_topic(
    message: pb2.PlannedAction, action: actions.TopicAction | actions.ConfigAction | actions.Skip
) -> None:
    message.source_topic = action.source_topic
    message.target_topic = action.target_topic
    match action:
        case actions.CreateTopic():
            message.after = str(action.partition_count)
            message.configs.update(action.configs)
        case actions.GrowPartitions():
            message.before, message.after = str(action.from_count), str(action.to_count)
        case actions.SetConfig() | actions.DeleteConfig():
            message.name = action.name
            if action.before is not None:
                message.before = action.before
            if isinstance(action, actions.SetConfig):
                message.after = action.value
        case actions.Skip():
            message.name = action.what


def explanation_message(flow: Flow, explanation: Explanation) -> pb2.TopicExplanation:
    entry = explanation.entry
    return message_of(
        pb2.TopicExplanation,
        explanation,
        flow=flow_message(flow),
        topic=None if entry is None else topic_message(flow, entry),
        offsets=None if explanation.offsets is None else message_of(pb2.ExpectedOffsets, explanation.offsets),
    )


def acl_entry_message(entry: AclEntry) -> pb2.AclEntry:
    source, target = (
        None if binding is None else message_of(pb2.AclBinding, binding)
        for binding in (entry.source, entry.target)
    )
    return message_of(pb2.AclEntry, entry, source=source, target=target)
