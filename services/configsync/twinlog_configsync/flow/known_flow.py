"""A flow as its registry on the target shows it: its topics, the rules in force, and what it wants there."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.acl_rights import LITERAL, WILDCARD
from twinlog.backoff import backoff_seconds
from twinlog.clock import Clock
from twinlog.errors import ConfigError, TransientKafkaError, TwinlogError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.internal_topics import is_mirror_topic
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicLimits
from twinlog.service.feeds.rules_record import heeding, rules_noted, rules_told
from twinlog.write_blocks import is_fence, is_holder
from twinlog_configsync.access.acl_rules import is_own_name
from twinlog_configsync.config import ConfigSyncFlow
from twinlog_configsync.flow.change_log import ChangeLog
from twinlog_configsync.flow.claims import claim_as_stored
from twinlog_configsync.flow.loop_guard import LoopGuard
from twinlog_configsync.model.memory import Memory, recall
from twinlog_configsync.model.records import (
    AclRecord,
    QuotaRecord,
    RecordKey,
    RecordValue,
    RegistryCodec,
    acl_key,
    quota_key,
)
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings
from twinlog_configsync.planning.rules import FlowRules

# Which records of the registry are trusted. Pure.
#
# Anybody who may write `mm2-configsync.<A>.internal` could otherwise have ACLs deleted that Twinlog never
# created, or topics taken for copies. A record counts only if this flow could have written it. Others are
# logged and left out, and the next write removes them.

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
            checked.records[key] = (
                _with_its_copy(value, rules) if isinstance(value, ReplicatedTopic) else value
            )
    return checked


def _problem(key: RecordKey, value: RecordValue, rules: FlowRules) -> str:
    match value:
        case ReplicatedTopic():
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


def _with_its_copy(entry: ReplicatedTopic, rules: FlowRules) -> ReplicatedTopic:
    """The copy has the name that the policy gives; what is known of another topic is dropped."""
    target_topic = rules.selector.policy.format_remote_topic(rules.flow.source, entry.source_topic)
    if entry.target_topic == target_topic:
        return entry
    return replace(
        entry,
        target_topic=target_topic,
        target_topic_id="",
        target_partition_count=0,
        limits=TopicLimits(),
    )


ANSWER_SECONDS: Final = 10.0
"""How long a cluster may take to answer at all."""

_FIRST_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 60.0
"""How often rules that cannot be used are tried again."""
_KNOWN_SECONDS: Final = 5.0
"""How long the registry of another process's flow counts as read: many flows may ask for it."""


class KnownFlow:
    """What the registry says, and the rules that follow from it and from the file. Hold `lock` while it is
    read.

    Work that takes long with thousands of topics runs in a thread, because the loop also keeps the lease.
    """

    def __init__(
        self,
        flow: ConfigSyncFlow,
        *,
        target: KafkaCluster,
        claims: DesiredBindings,
        clock: Clock,
        journal: ChangeLog,
    ) -> None:
        self.config = flow
        self.target = target
        self.loop_guard = LoopGuard()
        self.rules = flow.rules
        self.rules_problem = ""
        """Why changed rules are not in force."""
        self._rules_failures = 0
        self._rules_due_at = 0.0
        """When rules that cannot be used are tried again, in monotonic seconds."""
        self.memory = Memory()
        self.loaded = False
        self.lock = asyncio.Lock()
        self._is_owner = False
        self._store = Table(
            cluster=target,
            topic=flow.registry_topic,
            codec=RegistryCodec(),
            replication_factor=flow.registry_replication_factor,
        )
        self._claims = claims
        self._clock = clock
        self._journal = journal

    @property
    def flow(self) -> Flow:
        return self.config.flow

    @property
    def rules(self) -> FlowRules:
        """The rules in force: the file's, with changes on top, without topics that other flows would copy
        back."""
        return self._rules

    @rules.setter
    def rules(self, rules: FlowRules) -> None:
        self.own_rules = rules
        self._rules = self.loop_guard.guarded(rules)

    @property
    def known_names(self) -> Collection[str]:
        """The names of topics on the source that are known."""
        return self.memory.entries

    async def follow(self) -> None:
        """Read and publish what the owner, another process, has written to the registry. Raises KafkaError,
        WireFormatError (REGISTRY_UNREADABLE)."""
        async with self.lock:
            await identify(self.target, self.flow.target)
            await self._load()
            self._claims.follow(self.flow, acls=self._syncs(Scope.ACLS), quotas=self._syncs(Scope.QUOTAS))
            claim_as_stored(self._claims, self.flow, self.memory, scopes=self.rules.intervals_seconds)

    def _syncs(self, scope: Scope) -> bool:
        return scope in self.rules.intervals_seconds

    async def rebuilt(self, values: Mapping[str, str]) -> FlowRules:
        """The rules with these values on top of the file. Raises ConfigError."""
        return await asyncio.to_thread(self.config.with_values, values)

    async def _load(self) -> None:
        before = self.memory.rules
        checked = check_records(await self._store.load(), self.rules)
        self._journal.records_refused(checked.refused)
        self.memory = await self._heeding_file(recall(checked.records))
        if self.memory.rules != before:
            self._rules_failures = 0
            await self._follow_stored_rules()
        elif self._may_use_rules_now:
            await self._follow_stored_rules()
        if not self.loaded:
            self._journal.loaded(topics=len(self.memory.entries), settled=self.memory.settled)
            if self.memory.rules is not None:
                self._journal.rules_in_force(
                    rules_told(self.flow, self.memory.rules, self.config.file.values)
                )
        self.loaded = True
        self._publish()

    async def _heeding_file(self, memory: Memory) -> Memory:
        """Put rules aside whose keys have another value in the file than the one that they replaced: only the
        owner does, before anybody follows them. Another process, whose file may be an older one, says so."""
        before, now_ms = memory.rules, self._clock.now_ms()
        if before is None or (rules := heeding(before, self.config.file.written, now_ms=now_ms)) == before:
            return memory
        if not self._is_owner:
            if rules.revision != before.revision:
                self._journal.rules_of_another_file(
                    before.revision, sorted(before.values.keys() - rules.values)
                )
            return memory
        if rules.revision != before.revision:
            memory = memory.with_change(
                "PutRulesAside",
                by="",
                peer="",
                at_ms=now_ms,
                before=rules_noted(before),
                after=rules_noted(rules),
            )
        memory = replace(memory, rules=rules)
        await self._write(memory)
        return memory

    async def _write(self, memory: Memory) -> None:
        """Store it, and read back what others are told, also of an earlier time that failed. Raises
        KafkaError; then some may be stored."""
        await self._store.replace(await asyncio.to_thread(memory.records))
        if not self._store.is_read_back:
            await self._store.load()

    @property
    def _may_use_rules_now(self) -> bool:
        """Whether rules that could not be used are to be tried again: each try loads the whole file."""
        return bool(self.rules_problem) and self._clock.monotonic() >= self._rules_due_at

    async def _follow_stored_rules(self) -> None:
        """Rules that cannot be used now, because a secret cannot be read for example, are tried again later.
        Until then the ones before apply."""
        values = {} if self.memory.rules is None else self.memory.rules.values
        before = self.rules_problem
        try:
            self.rules, self.rules_problem = await self.rebuilt(values), ""
            self._rules_failures = 0
        except ConfigError as error:
            self.rules_problem = str(error)
            wait_seconds = backoff_seconds(
                self._rules_failures, first=_FIRST_RETRY_SECONDS, longest=_LONGEST_RETRY_SECONDS
            )
            self._rules_failures += 1
            self._rules_due_at = self._clock.monotonic() + wait_seconds
            if self.rules_problem != before:
                self._journal.rules_unusable(error)

    def _publish(self) -> None:
        """Tell those who follow the flow."""


class OtherFlow(KnownFlow):
    """A flow of another process that concerns flows of this one. This process never runs it, and never asks
    its source."""

    def __init__(
        self,
        flow: ConfigSyncFlow,
        *,
        target: KafkaCluster,
        claims: DesiredBindings,
        clock: Clock,
        journal: ChangeLog,
    ) -> None:
        super().__init__(flow, target=target, claims=claims, clock=clock, journal=journal)
        self._known_at = float("-inf")
        self._knowing = asyncio.Lock()

    async def know(self) -> None:
        """Make sure that this process knows what the flow's owner has stored, for other flows. While that
        cannot be read, its rules stay as they were, and nothing is removed that it may want."""
        async with self._knowing:
            if self._clock.monotonic() - self._known_at < _KNOWN_SECONDS:
                return
            try:
                await self.follow()
            except TwinlogError as error:
                self._journal.failed(error)
                self._claims.doubt_acls(self.flow)
                self._claims.doubt_quotas(self.flow)
            self._known_at = self._clock.monotonic()


async def identify(cluster: KafkaCluster, alias: ClusterAlias) -> str:
    """The cluster's id. Raises TransientKafkaError soon when the cluster is down, long before the client
    gives up."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await cluster.cluster_id()
    except TimeoutError as error:
        raise TransientKafkaError(
            f"cluster {alias}: no answer within {ANSWER_SECONDS:g} s; check {alias}.bootstrap.servers",
            reason="KAFKA_TIMEOUT",
            metadata={"cluster": alias},
        ) from error
    except TransientKafkaError as error:
        raise TransientKafkaError(
            f"{error}; check {alias}.bootstrap.servers", reason=error.reason, metadata=error.metadata
        ) from error
