"""Reads the facts from the clusters. Changes nothing: topics are created with validate_only."""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from twinlog.config import ClientConfig, Configuration, FlowConfig, Service
from twinlog.config.flow.filters import group_filter
from twinlog.errors import ConfigError, KafkaError, StateError, WireFormatError, first_of
from twinlog.kafka.admin.compacted_topic import COMPACTED_SOON, missing_settings
from twinlog.kafka.admin.topics import ClusterInspector
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.deadline import leaving_out, short_patience
from twinlog.kafka.outage import Outage, of_file
from twinlog.kafka.ports import ConfigEntry, KafkaCluster, NewTopic, OffsetSpec
from twinlog.loops import whole_file
from twinlog.model import ClusterAlias, TopicPartition
from twinlog.policy.internal_topics import (
    owners_group,
    source_of_offsets,
    source_offsets_topic,
    transactional_id_prefix,
)
from twinlog.policy.replication import is_topic_name
from twinlog.preflight.facts import (
    CheckedFlow,
    ClusterFacts,
    Facts,
    GroupRights,
    InternalTopic,
    Operations,
    TopicFacts,
    own_topics,
)
from twinlog.preflight.gather_adoption import offsets_of, target_logs
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.feeds.registry import stored_topics
from twinlog.service.feeds.replicated_topics import left_out
from twinlog.service.feeds.rules import flow_in_force

_OTHER_FILES: Final = (
    "needed where a flow of another file copies the topics back: without it copies are copied round"
)
# Reads a principal's rights on groups and transactional ids, on both ends of a flow. Changes nothing.

_PROBE: Final = "preflight.of.twinlog"
"""A name that no group has and, behind the flow's prefix, no transactional id."""
_MOST: Final = 500
"""Most groups asked about, and logs looked into: each costs a request of its own."""


async def group_rights(
    config: FlowConfig,
    source: KafkaCluster,
    source_rights: ClusterInspector,
    target_rights: ClusterInspector,
    on_source_cluster: Operations,
) -> GroupRights:
    """The principal's rights on the flow's groups. Never raises KafkaError: the answer holds it."""
    leases = [owners_group(str(service), config.flow.target) for service in Service]
    if not config.checkpoint.enabled:
        return GroupRights(elections=await _asked(target_rights, leases))
    taken = group_filter(config)
    try:
        listed = sorted(group for group in await source.list_groups() if taken.takes(group))
    except KafkaError as error:
        return GroupRights(elections=await _asked(target_rights, leases), unlisted=error)
    names = listed[:_MOST]
    async with asyncio.TaskGroup() as tasks:
        here = tasks.create_task(_asked(source_rights, [*names, _PROBE]), name="rights on groups, source")
        there = tasks.create_task(_asked(target_rights, [*names, *leases]), name="rights on groups, target")
    on_source, on_target = here.result(), there.result()
    every = on_source.pop(_PROBE)
    lists_all = not isinstance(on_source_cluster, KafkaError) and "DESCRIBE" in on_source_cluster
    return GroupRights(
        elections={name: on_target.pop(name) for name in leases},
        on_source=on_source,
        on_target=on_target,
        sees_all=lists_all or not isinstance(every, KafkaError),
        not_asked=len(listed) - len(names),
    )


async def transaction_rights(config: FlowConfig, target_rights: ClusterInspector) -> bool | KafkaError:
    """Whether the flow may write with its transactional ids; True for a flow without any."""
    if not config.source.exactly_once:
        return True
    try:
        return await target_rights.may_write_transactions(f"{transactional_id_prefix(config.flow)}{_PROBE}")
    except KafkaError as error:
        return error


async def _asked(rights: ClusterInspector, names: Collection[str]) -> dict[str, Operations]:
    try:
        return dict(await rights.group_operations(names))
    except KafkaError as error:
        return dict.fromkeys(names, error)


_FLOWS_AT_ONCE: Final = 8
_USER: Final = re.compile(r'username\s*=\s*"?([^"\s;]+)')


async def gather_facts(configuration: Configuration, *, timeout_seconds: float) -> Facts:
    """Ask every cluster of an enabled flow. An unreachable cluster is a fact, not an error; `timeout_seconds`
    bounds each call."""
    flows = configuration.enabled_flows
    aliases = sorted({alias for config in flows for alias in (config.flow.source, config.flow.target)})
    async with asyncio.TaskGroup() as group:
        looks = {
            alias: group.create_task(
                _cluster(configuration.clusters[alias].admin, timeout_seconds), name=f"look at {alias}"
            )
            for alias in aliases
        }
    clusters = {alias: look.result() for alias, look in looks.items()}
    turns = asyncio.Semaphore(_FLOWS_AT_ONCE)

    async def checked(config: FlowConfig) -> CheckedFlow:
        outages = {end: clusters[end].outage for end in (config.flow.source, config.flow.target)}
        silent = {end: outage.brokers.keys() for end, outage in outages.items()}
        async with turns:
            with short_patience(any(outages.values())), leaving_out(silent):
                return await _flow(configuration, config, clusters, timeout_seconds)

    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(checked(config), name=f"look at {config.flow}") for config in flows]
    return Facts(
        clusters=clusters,
        flows=[check.result() for check in checks],
        security=configuration.security,
        listens={str(service): entry.listen for service, entry in configuration.endpoints.items()},
        file=configuration.file,
        aliases=list(configuration.clusters),
        notices=configuration.notices,
    )


async def _cluster(client: ClientConfig, timeout_seconds: float) -> ClusterFacts:
    try:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(_open(client, timeout_seconds))
            inspector = await stack.enter_async_context(_inspect(client, timeout_seconds))
            present = await cluster.presence()
            async with asyncio.TaskGroup() as asked:
                outage = asked.create_task(cluster.outage(present), name="silent brokers")
                release = asked.create_task(inspector.release(), name="release")
                configs = asked.create_task(_broker_configs(cluster), name="configs of a broker")
                topics = asked.create_task(cluster.list_topics(), name="names of topics")
            missing = outage.result()
            return ClusterFacts(
                alias=client.alias,
                cluster_id=present.cluster_id,
                release=release.result(),
                broker_count=len(present.brokers.keys() | missing.brokers.keys()),
                broker_configs=configs.result(),
                topics=frozenset(topics.result()),
                outage=missing,
            )
    except (KafkaError, ConfigError, ExceptionGroup) as failure:
        error = first_of(failure)
        if not isinstance(error, KafkaError | ConfigError):
            raise
        away = Outage(reason=error.reason, brokers=of_file(client.bootstrap_servers))
        return ClusterFacts(alias=client.alias, unreachable=error, outage=away)


async def _broker_configs(cluster: KafkaCluster) -> Mapping[str, str]:
    try:
        entries = await cluster.describe_broker_configs()
    except KafkaError as error:
        if error.retriable:
            raise
        return {}
    return {entry.name: entry.value for entry in entries if entry.value is not None}


async def _flow(
    configuration: Configuration,
    config: FlowConfig,
    clusters: Mapping[ClusterAlias, ClusterFacts],
    timeout_seconds: float,
) -> CheckedFlow:
    source, target = config.clients.source_admin, config.clients.target_admin
    ends = (clusters[config.flow.source], clusters[config.flow.target])
    facts = CheckedFlow(
        config=config,
        selector=topic_selector(config),
        source_principal=principal_of(source),
        target_principal=principal_of(target),
    )
    if any(end.unreachable is not None for end in ends):
        return facts
    async with AsyncExitStack() as stack:
        target_cluster = await stack.enter_async_context(_open(target, timeout_seconds))
        try:
            in_force = await flow_in_force(configuration, config.flow, target_cluster, starting=True)
            copied = await stored_topics(target_cluster, config.flow)
        except (StateError, KafkaError, WireFormatError) as error:
            facts = replace(facts, rules_unknown=error)
        else:
            config, selector = in_force.config, topic_selector(in_force.config)
            here = [topic for name, topic in copied.items() if name in ends[0].topics]
            facts = replace(
                facts,
                config=config,
                selector=selector,
                rules=in_force.told,
                left_out=left_out(here, selector),
            )
        selected = sorted(name for name in ends[0].topics if facts.selector.selects(name))
        named = [
            name
            for name in dict.fromkeys(facts.selector.topic_filter.include.patterns)
            if is_topic_name(name) and name not in ends[0].topics and facts.selector.selects(name)
        ]
        look = _FlowLook(
            config=config,
            selector=facts.selector,
            source=await stack.enter_async_context(_open(source, timeout_seconds)),
            target=target_cluster,
            source_rights=await stack.enter_async_context(_inspect(source, timeout_seconds)),
            target_rights=await stack.enter_async_context(_inspect(target, timeout_seconds)),
        )
        on_source = await _operations(look.source_rights)
        of_groups = group_rights(config, look.source, look.source_rights, look.target_rights, on_source)
        of_ids = look.ids(ends[0].topics, whole_file(configuration).enabled_flows)
        # Each of these waits for brokers that do not answer: all at the same time.
        async with asyncio.TaskGroup() as asked:
            topics = asked.create_task(look.topics(selected), name="topics")
            unseen = asked.create_task(look.source_rights.topic_operations(named), name="named topics")
            internal = asked.create_task(look.internal(), name="internal topics")
            ids = asked.create_task(of_ids, name="topics of other flows")
            on_target = asked.create_task(_operations(look.target_rights), name="rights on the target")
            groups = asked.create_task(of_groups, name="rights on groups")
            transactions = asked.create_task(
                transaction_rights(config, look.target_rights), name="rights on transactions"
            )
        return replace(
            facts,
            topics=topics.result(),
            unseen={name: told for name, told in unseen.result().items() if isinstance(told, KafkaError)},
            internal=[*internal.result(), *ids.result()],
            source_operations=on_source,
            target_operations=on_target.result(),
            other_principals=other_principals(config),
            groups=groups.result(),
            transactions=transactions.result(),
        )


class _FlowLook:
    """Reads the topics of one flow."""

    def __init__(
        self,
        *,
        config: FlowConfig,
        selector: TopicSelector,
        source: KafkaCluster,
        target: KafkaCluster,
        source_rights: ClusterInspector,
        target_rights: ClusterInspector,
    ) -> None:
        self._config = config
        self._selector = selector
        self.source = source
        self._target = target
        self.source_rights = source_rights
        self.target_rights = target_rights

    async def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        policy, alias = self._selector.policy, self._config.flow.source
        remote = {name: policy.format_remote_topic(alias, name) for name in names}
        source = await self.source.describe_topics(names)
        source_configs = await self.source.describe_topic_configs(names)
        source_operations = await self.source_rights.topic_operations(names)
        target = await self._target.describe_topics(remote.values())
        present = [name for name, topic in target.items() if not isinstance(topic, KafkaError)]
        target_configs = await self._target.describe_topic_configs(present)
        target_operations = await self.target_rights.topic_operations(present)
        creations = await self.target_rights.try_creating(
            [self._new_topic(name) for name in remote.values() if name not in present]
        )
        there = await target_logs(
            self._config, policy, self._target, {name: target[copy] for name, copy in remote.items()}
        )
        new = [name for name, copy in remote.items() if copy not in present or copy in there.ends]
        starts, starts_unread = await offsets_of(
            self.source, OffsetSpec.EARLIEST, [source[name] for name in new]
        )
        keyless = await self._keyless(starts, source_configs)
        return [
            TopicFacts(
                name=name,
                target_name=copy,
                source=source[name],
                source_configs=source_configs[name],
                target=target[copy],
                target_configs=target_configs.get(copy, ()),
                source_operations=source_operations[name],
                target_operations=target_operations.get(copy, frozenset()),
                creation=creations.get(copy),
                log_starts=starts.get(name, ()),
                unread=starts_unread.get(name) or there.unread.get(copy),
                keyless=keyless.get(name, {}),
                target_ends=there.ends.get(copy),
                held=there.held.get(name, {}),
                is_preserved=name in there.preserved,
            )
            for name, copy in remote.items()
        ]

    async def _keyless(
        self,
        starts: Mapping[str, Sequence[int]],
        configs: Mapping[str, Sequence[ConfigEntry] | KafkaError],
    ) -> Mapping[str, Mapping[int, int]]:
        """Of compacted logs, which had records without a key only before they were compacted; only their
        begin is read. What cannot be read counts as having none."""
        compacted = {
            name
            for name, entries in configs.items()
            if not isinstance(entries, KafkaError)
            and any(each.name == "cleanup.policy" and "compact" in (each.value or "") for each in entries)
        }
        asked = [
            (TopicPartition(name, number), start)
            for name in sorted(compacted & starts.keys())
            for number, start in enumerate(starts[name])
        ]
        found: dict[str, dict[int, int]] = {}
        async with self.source.reader(read_committed=False) as reader:
            for partition, start in asked[:_MOST]:
                try:
                    records = (await reader.fetch(partition, start, max_wait_seconds=0)).records
                except KafkaError:
                    continue
                offset = next((each.offset for each in records if each.key is None), None)
                if offset is not None:
                    found.setdefault(partition.topic, {})[partition.partition] = offset
        return found

    async def internal(self) -> list[InternalTopic]:
        found: list[InternalTopic] = []
        owned = own_topics(self._config, self._selector.policy)
        for alias, rights in (
            (self._config.flow.source, self.source_rights),
            (self._config.flow.target, self.target_rights),
        ):
            topics = [each for each in owned if each.cluster == alias]
            operations = await rights.topic_operations([each.name for each in topics])
            creations = await rights.try_creating(
                [self._new_topic(name) for name, told in operations.items() if isinstance(told, KafkaError)]
            )
            found += [
                InternalTopic(
                    cluster=alias,
                    name=each.name,
                    operations=operations[each.name],
                    creation=creations.get(each.name),
                    purpose=each.purpose,
                    missing_settings=await self._missing_settings(each.name) if each.is_read_whole else {},
                )
                for each in topics
            ]
        return found

    async def ids(self, visible: Collection[str], flows: Iterable[FlowConfig]) -> list[InternalTopic]:
        """The topics that say which batches on the source are copies (docs/both-ways.md)."""
        if self._selector.policy.tracks_topic_sources:
            return []
        flow = self._config.flow
        back = source_offsets_topic(flow.target)
        needed = {each.source.offset_storage.topic for each in flows if each.flow.target == flow.source}
        if back in visible:
            needed.add(back)
        names = sorted({back, *needed, *(name for name in visible if source_of_offsets(name) is not None)})
        return [
            InternalTopic(
                cluster=flow.source,
                name=name,
                operations=operations,
                purpose="" if name in needed else _OTHER_FILES,
                is_written=False,
            )
            for name, operations in (await self.source_rights.topic_operations(names)).items()
        ]

    async def _missing_settings(self, topic: str) -> Mapping[str, str]:
        """Empty if the topic does not exist, or its settings may not be read. Raises KafkaError."""
        storage = self._config.source.offset_storage
        entries = (await self._target.describe_topic_configs([topic], keys=list(COMPACTED_SOON)))[topic]
        if isinstance(entries, KafkaError):
            return {}
        chosen = storage.topic_configs if topic == storage.topic else {}
        return {key: value for key, value in missing_settings(entries).items() if key not in chosen}

    def _new_topic(self, name: str) -> NewTopic:
        return NewTopic(name=name, partition_count=1, replication_factor=-1)


async def _operations(inspector: ClusterInspector) -> frozenset[str] | KafkaError:
    try:
        return await inspector.cluster_operations()
    except KafkaError as error:
        return error


def principal_of(client: ClientConfig) -> str:
    """`User:name` as far as the properties show it, Kafka's `User:ANONYMOUS` where nobody logs in; empty for
    certificates, tokens and Kerberos."""
    found = _USER.search(client.properties.get("sasl.jaas.config", ""))
    if found:
        return f"User:{found.group(1)}"
    logs_in = client.properties.get("security.protocol", "PLAINTEXT").upper().startswith("SASL")
    shows_certificate = any(key.startswith("ssl.keystore.") for key in client.properties)
    return "" if logs_in or shows_certificate else "User:ANONYMOUS"


def other_principals(config: FlowConfig) -> dict[str, str]:
    """Clients of the flow that log in as another user than the admin client of their cluster, which asks."""
    clients, source, target = config.clients, config.flow.source, config.flow.target
    roles = (
        (f"{source} consumer", clients.source_consumer, clients.source_admin),
        (f"{source} producer", clients.source_producer, clients.source_admin),
        (f"{target} consumer", clients.target_consumer, clients.target_admin),
        (f"{target} producer", clients.data_producer, clients.target_admin),
    )
    return {
        name: principal_of(client) or "another user"
        for name, client, admin in roles
        if principal_of(client) != principal_of(admin)
    }


def _open(client: ClientConfig, timeout_seconds: float) -> KafkaCluster:
    return open_cluster(client.alias, client.properties, timeout_seconds=timeout_seconds)


def _inspect(client: ClientConfig, timeout_seconds: float) -> ClusterInspector:
    return ClusterInspector(client.alias, client.properties, timeout_seconds=timeout_seconds)
