"""Converts rules from and to protobuf messages of the API."""

from typing import Final

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.config.keys.table import BY_NAME
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.api_values import flow_message, message_of, timestamp
from twinlog.service.feeds.rules_record import RulesRecord
from twinlog.service.feeds.server import Changed, Event, Marked, Progress, Removed, SnapshotEnd, SnapshotItem
from twinlog_configsync.planning.live_rules import RuleChange, RuleOperation, RulesView, is_list

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


def watch_rules_message(event: Event[Flow, RulesRecord], *, now_ms: int) -> pb2.WatchRulesResponse | None:
    """None for changes that watchers of rules do not need."""
    match event:
        case SnapshotItem(key=flow, item=record, token=token):
            return pb2.WatchRulesResponse(resume_token=token, snapshot_item=_changed(flow, record))
        case SnapshotEnd(marks=flows, token=token):
            known = [flow_message(flow) for flow in flows]
            return pb2.WatchRulesResponse(
                resume_token=token, snapshot_end=pb2.RulesSnapshotEnd(known_flows=known)
            )
        case Changed(key=flow, item=record, token=token):
            return pb2.WatchRulesResponse(resume_token=token, changed=_changed(flow, record))
        case Progress(token=token):
            as_of = timestamp(now_ms)
            return pb2.WatchRulesResponse(resume_token=token, progress=types_pb2.Progress(as_of=as_of))
        case Marked() | Removed():
            return None


def _changed(flow: Flow, record: RulesRecord) -> pb2.ChangedRules:
    return pb2.ChangedRules(flow=flow_message(flow), version=record.revision, values=record.values)
