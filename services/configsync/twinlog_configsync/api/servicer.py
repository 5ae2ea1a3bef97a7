"""ConfigSyncService over gRPC: converts requests, calls the domain, converts the answers. No decisions, no
Kafka."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, starmap
from typing import Final, Literal

import structlog

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceServicer
from twinlog.config.keys.table import BY_NAME
from twinlog.errors import ConfigError, KafkaError
from twinlog.model import Flow
from twinlog.policy.expected_offsets import ExpectedOffsets
from twinlog.service.access.audit import changed
from twinlog.service.access.gate import caller_name
from twinlog.service.api_values import flow_message, flow_of, message_of, named, timestamp
from twinlog.service.clusters import Clusters
from twinlog.service.feeds.pages import (
    KeptAnswer,
    KeptAnswers,
    checked_page_size,
    key_of,
    page_behind,
    page_of,
)
from twinlog.service.grpc_server import Context
from twinlog_configsync.access.acl_plan import AclEntry
from twinlog_configsync.api.messages import (
    acl_entry_message,
    explanation_message,
    flow_status_message,
    outcome_message,
    plan_head_message,
    planned_message,
    topic_message,
)
from twinlog_configsync.flow.commands import Asked, FlowCommands
from twinlog_configsync.flow.sync import FlowSync
from twinlog_configsync.model.actions import Action
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.live_rules import RuleChange, RuleOperation, RulesView, is_list

_MOST_NAMED: Final = 100
"""Most topics that a change of rules stops and that its answer names."""

# Converts rules from and to protobuf messages of the API.

_OPERATIONS: Final = {
    pb2.RULE_OPERATION_SET: RuleOperation.SET,
    pb2.RULE_OPERATION_ADD: RuleOperation.ADD,
    pb2.RULE_OPERATION_REMOVE: RuleOperation.REMOVE,
    pb2.RULE_OPERATION_RESET: RuleOperation.RESET,
    pb2.RULE_OPERATION_RESTORE: RuleOperation.RESTORE,
}


def rules_message(flow: Flow, view: RulesView) -> pb2.Rules:
    rules = [
        message_of(
            pb2.Rule,
            rule,
            meaning=BY_NAME[rule.key].meaning,
            is_list=is_list(rule.key),
            changed_by=rule.origin.by,
            changed_at=timestamp(rule.origin.at_ms or None),
            replaced=rule.origin.replaced,
            put_aside=rule.aside,
        )
        for rule in view.rules
    ]
    return message_of(
        pb2.Rules,
        view,
        flow=flow_message(flow),
        version=view.revision,
        updated=timestamp(view.updated_at_ms),
        rules=rules,
    )


def rule_change_of(message: pb2.RuleChange) -> RuleChange:
    """Raises ConfigError for an unknown operation."""
    operation = _OPERATIONS.get(message.operation)
    if operation is None:
        raise ConfigError(f"{message.key}: the operation is missing", metadata={"field": "changes.operation"})
    return RuleChange(key=message.key, operation=operation, value=message.value)


_Planned = tuple[Action, Mapping[str, ExpectedOffsets], KafkaError | None]

_log = structlog.stdlib.get_logger(__name__)


MOST_SHOWN = 20
"""Most actions in one line of the audit log; the line also has their total number."""


def _value(action: pb2.PlannedAction, when: Literal["before", "after"]) -> str | None:
    """None if there is no value, or it is not known."""
    return getattr(action, when) if action.HasField(when) else None


def _rules_shown(rules: pb2.Rules, keys: Collection[str]) -> dict[str, object]:
    """Only the rules that the call changes; all of them would not fit."""
    return {"version": rules.version, **{rule.key: rule.value for rule in rules.rules if rule.key in keys}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFlow:
    sync: FlowSync
    commands: FlowCommands


class ConfigSyncServicer(ConfigSyncServiceServicer):
    def __init__(
        self,
        flows: Mapping[Flow, ServedFlow],
        *,
        clusters: Clusters,
        stop: asyncio.Event,
    ) -> None:
        self._flows = flows
        self._stop = stop
        self._clusters = clusters
        self._plans: KeptAnswers[_Planned, pb2.Plan] = KeptAnswers()
        self._acls: KeptAnswers[AclEntry, None] = KeptAnswers()

    async def ListFlows(self, request: pb2.ListFlowsRequest, context: Context) -> pb2.ListFlowsResponse:  # noqa: N802
        return pb2.ListFlowsResponse(
            flows=[
                flow_status_message(
                    flow,
                    served.sync.status,
                    served.sync.passes.topics,
                    served.sync.passes.cycles,
                    self._clusters.statuses([flow.source, flow.target]),
                )
                for flow, served in sorted(self._flows.items(), key=lambda each: each[0])
            ]
        )

    async def ListTopics(self, request: pb2.ListTopicsRequest, context: Context) -> pb2.ListTopicsResponse:  # noqa: N802
        asked, size = self._asked(request), checked_page_size(request.page_size)
        flows = sorted(self._flows) if asked is None else [asked]
        response = pb2.ListTopicsResponse(
            settled_flows=[
                flow_message(each) for each in flows if self._flows[each].sync.passes.memory.settled
            ],
        )
        page, response.next_page_token = page_behind(
            ((each, entry) for each in flows for entry in self._flows[each].sync.passes.topics),
            key_of(request.page_token, (str, str, str)),
            key=lambda row: (row[0].source, row[0].target, row[1].source_topic),
            message=lambda row: topic_message(*row),
            size=size,
            beside_bytes=response.ByteSize(),
        )
        response.topics.extend(page)
        return response

    async def PlanSync(self, request: pb2.PlanSyncRequest, context: Context) -> pb2.PlanSyncResponse:  # noqa: N802
        commands, flow = named(self._flows, request.flow).commands, flow_of(request.flow)
        size = checked_page_size(request.page_size)
        if request.page_token:
            answer, first = self._plans.at(request.page_token, subject=flow)
        else:
            plan, world = await commands.preview(_scopes(request.scopes))
            head = plan_head_message(plan, world, rules=commands.rules_told())
            offsets = await commands.expected_offsets(plan)
            planned = tuple((action, offsets, commands.refusal(action)) for action in plan.actions)
            answer, first = KeptAnswer(subject=flow, rows=planned, head=head), 0
        message = pb2.PlanSyncResponse(plan=answer.head)
        rows = starmap(planned_message, islice(answer.rows, first, None))
        page, _ = page_of(rows, size=size, beside_bytes=message.ByteSize())
        message.plan.actions.extend(page)
        message.next_page_token = self._plans.next_token(answer, request.page_token, shown=first + len(page))
        return message

    async def ApplySync(self, request: pb2.ApplySyncRequest, context: Context) -> pb2.ApplySyncResponse:  # noqa: N802
        served = named(self._flows, request.flow)
        asked = Asked(by=caller_name("", context), peer=context.peer())
        outcome = await served.commands.apply(request.plan_id, self._stop, asked=asked)
        answer = outcome_message(outcome)
        first = answer.applied[:MOST_SHOWN]
        changed(
            before={"plan_id": request.plan_id, "values": [_value(each, "before") for each in first]},
            after={
                "applied": len(outcome.applied),
                "refused": len(outcome.refused),
                "values": [_value(each, "after") for each in first],
                "actions": [each.text for each in first],
            },
        )
        _log.info(
            "plan_applied",
            flow=str(served.sync.flow),
            plan_id=request.plan_id,
            applied=len(outcome.applied),
            refused=len(outcome.refused),
            peer=context.peer(),
        )
        return answer

    async def ExplainTopic(  # noqa: N802
        self, request: pb2.ExplainTopicRequest, context: Context
    ) -> pb2.ExplainTopicResponse:
        asked = self._asked(request)
        flows = sorted(self._flows) if asked is None else [asked]
        return pb2.ExplainTopicResponse(
            explanations=[
                explanation_message(flow, explanation)
                for flow in flows
                for explanation in await self._flows[flow].commands.explain(request.topic)
            ]
        )

    async def ListAcls(self, request: pb2.ListAclsRequest, context: Context) -> pb2.ListAclsResponse:  # noqa: N802
        commands, flow = named(self._flows, request.flow).commands, flow_of(request.flow)
        size = checked_page_size(request.page_size)
        if request.page_token:
            answer, first = self._acls.at(request.page_token, subject=flow)
        else:
            answer, first = KeptAnswer(subject=flow, rows=await commands.acls(), head=None), 0
        page, _ = page_of(map(acl_entry_message, islice(answer.rows, first, None)), size=size)
        token = self._acls.next_token(answer, request.page_token, shown=first + len(page))
        return pb2.ListAclsResponse(entries=page, next_page_token=token)

    async def GetRules(self, request: pb2.GetRulesRequest, context: Context) -> pb2.GetRulesResponse:  # noqa: N802
        served = named(self._flows, request.flow)
        return pb2.GetRulesResponse(rules=rules_message(served.sync.flow, served.commands.rules()))

    async def UpdateRules(  # noqa: N802
        self, request: pb2.UpdateRulesRequest, context: Context
    ) -> pb2.UpdateRulesResponse:
        served = named(self._flows, request.flow)
        changes = [rule_change_of(change) for change in request.changes]
        before = rules_message(served.sync.flow, served.commands.rules())
        view = await served.commands.update_rules(
            changes,
            expected_revision=request.expected_version if request.HasField("expected_version") else None,
            dry_run=request.dry_run,
            asked=Asked(by=caller_name(request.by, context), peer=context.peer()),
        )
        answer = rules_message(served.sync.flow, view)
        if not request.dry_run:
            keys = {change.key for change in changes}
            changed(before=_rules_shown(before, keys), after=_rules_shown(answer, keys))
            _log.info(
                "rules_updated",
                flow=str(served.sync.flow),
                version=view.revision,
                changes=[f"{each.operation} {each.key} {each.value}".strip() for each in changes],
                peer=context.peer(),
            )
        return pb2.UpdateRulesResponse(
            rules=answer,
            stopped_topics=view.stopped[:_MOST_NAMED],
            stopped_topic_count=len(view.stopped),
        )

    def _asked(self, request: pb2.ListTopicsRequest | pb2.ExplainTopicRequest) -> Flow | None:
        """The flow that a request names, None for all. Raises NotFoundError when this process does not have
        it."""
        return named(self._flows, request.flow).sync.flow if request.HasField("flow") else None


def _scopes(names: Iterable[str]) -> list[Scope]:
    """Raises ConfigError for an unknown scope."""
    chosen = list(names)
    unknown = [name for name in chosen if name not in Scope.__members__.values()]
    if unknown:
        raise ConfigError(
            f"scopes: a flow has no part {unknown[0]!r}; there are {', '.join(Scope)}",
            metadata={"field": "scopes"},
        )
    return [Scope(name) for name in chosen]
