"""Which records of the registry are trusted. Pure.

Anybody who may write `mm2-configsync.<A>.internal` could otherwise have ACLs deleted that Twinlog never
created, or topics taken for copies. A record counts only if this flow could have written it. Others are
logged and left out, and the next write removes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.acl_rights import LITERAL, WILDCARD
from twinlog.kafka.ports import AclBinding
from twinlog.policy.internal_topics import is_mirror_topic
from twinlog.write_blocks import is_fence, is_holder
from twinlog_configsync.access.acl_rules import is_own_name
from twinlog_configsync.model.entry import TargetLimits, TopicEntry
from twinlog_configsync.model.records import (
    AclRecord,
    QuotaRecord,
    RecordKey,
    RecordValue,
    acl_key,
    quota_key,
)
from twinlog_configsync.planning.rules import FlowRules

_QUOTA_KINDS: Final = frozenset({"user", "client-id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    records: dict[RecordKey, RecordValue]
    refused: dict[RecordKey, str]
    """Why a record does not count."""


def check_records(records: Mapping[RecordKey, RecordValue], rules: FlowRules) -> Checked:
    """The records that this flow could have written."""
    checked = Checked(records={}, refused={})
    for key, value in records.items():
        problem = _problem(key, value, rules)
        if problem:
            checked.refused[key] = problem
        else:
            checked.records[key] = _with_its_copy(value, rules) if isinstance(value, TopicEntry) else value
    return checked


def _problem(key: RecordKey, value: RecordValue, rules: FlowRules) -> str:
    match value:
        case TopicEntry():
            return "" if value.source_topic == key.name else "its key names another topic"
        case AclRecord():
            if acl_key(value.binding) != key:
                return "its key names another ACL"
            return _acl_problem(value.binding, rules)
        case QuotaRecord():
            if quota_key(value.entity) != key:
                return "its key names another entity"
            kinds = {kind for kind, _ in value.entity.parts}
            return "" if kinds and kinds <= _QUOTA_KINDS else "no flow copies quotas of this kind"
        case _:
            return ""


def _acl_problem(binding: AclBinding, rules: FlowRules) -> str:
    if is_fence(binding) or is_holder(binding):
        return "it is a fence of a failover, which no flow copies"
    match binding.resource_type:
        case "TOPIC":
            return "" if _is_copys_name(binding, rules) else "its topic is not a copy of this flow"
        case "GROUP" | "TRANSACTIONAL_ID":
            return "it belongs to Twinlog's own services" if is_own_name(binding.resource_name) else ""
        case _:
            return f"no flow copies ACLs of {binding.resource_type}"


def _is_copys_name(binding: AclBinding, rules: FlowRules) -> bool:
    """Also a pattern, as earlier releases created them, because it has to be removed."""
    name, policy, source = binding.resource_name, rules.selector.policy, rules.flow.source
    if binding.pattern_type != LITERAL or name == WILDCARD:
        return not policy.tracks_topic_sources or name.startswith(policy.format_remote_topic(source, ""))
    if is_mirror_topic(policy, name):
        return False
    owner = policy.topic_source(name)  # Whatever the rules rename now.
    return owner == source or (owner is None and not policy.tracks_topic_sources)


def _with_its_copy(entry: TopicEntry, rules: FlowRules) -> TopicEntry:
    """The copy has the name that the policy gives; what is known of another topic is dropped."""
    target_topic = rules.selector.policy.format_remote_topic(rules.flow.source, entry.source_topic)
    if entry.target_topic == target_topic:
        return entry
    return replace(
        entry,
        target_topic=target_topic,
        target_topic_id="",
        target_partition_count=0,
        limits=TargetLimits(),
    )
