"""The keys of MM2's three connectors and of Connect's connectors: at top level, or for one flow as
`A->B.<key>`."""

from typing import Any

from twinlog.config.keys.spec import ALL_SERVICES, POLICIES, KeySpec, Scope, Service, ValueType

_SOURCE = (Service.SOURCE,)
_CHECKPOINT = (Service.CHECKPOINT,)
_HEARTBEAT = (Service.HEARTBEAT,)
_CONFIGSYNC = (Service.CONFIGSYNC,)
_SYNCS = (Service.SOURCE, Service.CHECKPOINT)
_SELECTION = (Service.CONFIGSYNC, Service.CHECKPOINT)

_MM2 = "org.apache.kafka.connect.mirror"
_BYTES_ONLY = "records are copied byte for byte, nothing is converted"
_OWN_METRICS = "metrics are OpenTelemetry's, see docs/metrics.md"
_OWN_RETRIES = "each partition is retried by itself, see docs/states.md"
_NO_CONNECT = "there is no Connect framework"


def _key(name: str, value_type: ValueType, default: str | None, services: tuple[Service, ...],
         meaning: str, scope: Scope = Scope.FLOW, **more: Any) -> KeySpec:  # fmt: skip
    return KeySpec(name, value_type, default, services, meaning, scope, **more)


def _seconds(name: str, default: str, services: tuple[Service, ...], meaning: str, **more: Any) -> KeySpec:
    return _key(name, ValueType.NUMBER, default, services, meaning, unit="s", negative_is_off=True,
                **{"minimum": 0.1, **more})  # fmt: skip


def _switch(name: str, default: str, services: tuple[Service, ...], meaning: str, **more: Any) -> KeySpec:
    return _key(name, ValueType.BOOLEAN, default, services, meaning, **more)


def _ignored(
    name: str, value_type: ValueType, default: str | None, reason: str, *, scope: Scope = Scope.FLOW
) -> KeySpec:
    return _key(name, value_type, default, (), "", scope, no_effect=reason)


_COMMON = (
    _switch("enabled", "false", ALL_SERVICES,
            "Whether the flow replicates. Written per flow: `A->B.enabled=true`. Heartbeats have their "
            "own switch.", live=True),
    _key("name", ValueType.TEXT, None, _SOURCE,
         "The connector name in `mm2-offsets` records. Default: MM2's class names, such as "
         "MirrorSourceConnector.", scope=Scope.FLOW_ONLY),
    _key("source.cluster.alias", ValueType.TEXT, None, ALL_SERVICES,
         "Must be the flow's source when given."),
    _key("target.cluster.alias", ValueType.TEXT, None, ALL_SERVICES,
         "Must be the flow's target when given."),
    _key("admin.timeout.ms", ValueType.INTEGER, "30000", ALL_SERVICES,
         "The longest wait for one administrative call to either cluster.", unit="ms", minimum=1,
         mm2_default="60000"),
    _key("replication.policy.class", ValueType.CLASS, f"{_MM2}.DefaultReplicationPolicy", ALL_SERVICES,
         "How replicated topics are named: `A.orders` (Default), `orders` (Identity), or as the policy of an"
         " installed package says (docs/policies.md).",
         choices=(f"{_MM2}.DefaultReplicationPolicy", f"{_MM2}.IdentityReplicationPolicy"),
         other_classes=POLICIES),
    _key("replication.policy.separator", ValueType.TEXT, ".", ALL_SERVICES,
         "The separator between alias and topic in the names of replicated and internal topics. It may be"
         " empty with IdentityReplicationPolicy."),
    _key("replication.policy.internal.topic.separator.enabled", ValueType.BOOLEAN, "true", ALL_SERVICES,
         "Whether the names of the offset-syncs and checkpoints topics use the configured separator, too; "
         "false = they use a dot."),
    _key("forwarding.admin.class", ValueType.CLASS, "org.apache.kafka.clients.admin.ForwardingAdmin",
         ALL_SERVICES, "What creates and changes topics, their configs and ACLs on the target: Kafka's admin"
         " requests, or a class of an installed package (docs/policies.md).",
         choices=("org.apache.kafka.clients.admin.ForwardingAdmin",), other_classes=POLICIES,
         remedy="or delete the line and set twinlog.sync.mode=manual (docs/policies.md)"),
    _key("tasks.max", ValueType.INTEGER, None, _SOURCE,
         "The most slots that copy at the same time. Default: as many as Spark has cores.", minimum=1,
         mm2_default="1"),
    _key("exactly.once.support", ValueType.TEXT, "requested", _SOURCE,
         "`required` refuses to start a flow that could not be exactly-once.", scope=Scope.FLOW_ONLY,
         choices=("requested", "required")),
    _key("offsets.storage.topic", ValueType.TEXT, None, _SOURCE,
         "The positions topic of this flow, instead of the one of `offset.storage.topic`.",
         scope=Scope.FLOW_ONLY),
)  # fmt: skip

_SOURCE_KEYS = (
    _key("topics", ValueType.LIST, ".*", _SELECTION,
         "Topics to replicate: names and regular expressions that match the whole name.", distinct=True,
         live=True),
    _key("topics.exclude", ValueType.LIST, r"mm2.*\.internal, .*\.replica, __.*", _SELECTION,
         "Topics to leave out; wins over `topics`.", distinct=True, aliases=("topics.blacklist",), live=True),
    _key("topic.filter.class", ValueType.CLASS, f"{_MM2}.DefaultTopicFilter", _SELECTION,
         "MM2's own class, or that of an installed package, which decides in place of the lists"
         " (docs/policies.md).", choices=(f"{_MM2}.DefaultTopicFilter",),
         other_classes=POLICIES),
    _key("config.property.filter.class", ValueType.CLASS, f"{_MM2}.DefaultConfigPropertyFilter",
         _CONFIGSYNC, "MM2's own class, or that of an installed package, which decides in place of the lists"
         " (docs/policies.md).", choices=(f"{_MM2}.DefaultConfigPropertyFilter",),
         other_classes=POLICIES),
    _key("config.properties.exclude", ValueType.LIST,
         "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
         "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
         "log.message.timestamp.after.max.ms, message.timestamp.type, unclean.leader.election.enable, "
         "min.insync.replicas", _CONFIGSYNC,
         "Topic configs that are not copied: names and regular expressions.", distinct=True,
         aliases=("config.properties.blacklist",), live=True),
    _key("use.defaults.from", ValueType.TEXT, "target", _CONFIGSYNC,
         "The cluster whose default a copy gets for a config that is not set on the source topic.",
         scope=Scope.FLOW_ONLY,
         choices=("target", "source"), live=True),
    _switch("refresh.topics.enabled", "true", _CONFIGSYNC,
            "Whether Twinlog looks for new topics and partitions.", live=True),
    _seconds("refresh.topics.interval.seconds", "30", _CONFIGSYNC,
             "How often Twinlog looks for new topics and partitions.", mm2_default="600", live=True),
    _switch("sync.topic.configs.enabled", "true", _CONFIGSYNC, "Whether topic configs follow the source.",
         live=True),
    _seconds("sync.topic.configs.interval.seconds", "600", _CONFIGSYNC,
             "How often topic configs are synced.", live=True),
    _switch("sync.topic.acls.enabled", "true", _CONFIGSYNC, "Whether topic ACLs are copied.", live=True),
    _seconds("sync.topic.acls.interval.seconds", "600", _CONFIGSYNC, "How often topic ACLs are synced.",
         live=True),
    _key("replication.factor", ValueType.INTEGER, "2", _CONFIGSYNC,
         "Replication factor of replicated topics; -1 = the broker's default.", minimum=-1, live=True),
    _key("offset-syncs.topic.replication.factor", ValueType.INTEGER, "3", _SOURCE,
         "Replication factor of the offset-syncs topic; -1 = the broker's default.", minimum=-1),
    _key("offset-syncs.topic.location", ValueType.TEXT, "source", _SYNCS,
         "The cluster that holds the offset-syncs topic.", choices=("source", "target")),
    _switch("emit.offset-syncs.enabled", "true", _SYNCS,
            "Whether offset syncs are written. Without them groups cannot be translated, so checkpoints "
            "are off as well."),
    _key("offset.lag.max", ValueType.INTEGER, "100", _SOURCE,
         "How far a translated position may lag before an offset sync is written; 0 = one for every "
         "record.", unit="records", minimum=0),
    _switch("heartbeats.replication.enabled", "true", _CONFIGSYNC,
            "Whether heartbeats topics are replicated even if the topic filter excludes them.", live=True),
)  # fmt: skip

_CHECKPOINT_KEYS = (
    _key("groups", ValueType.LIST, ".*", _CHECKPOINT,
         "Consumer groups to translate: names and regular expressions.", distinct=True, live=True),
    _key("groups.exclude", ValueType.LIST, "console-consumer-.*, connect-.*, __.*", _CHECKPOINT,
         "Groups to leave out; wins over `groups`.", distinct=True, aliases=("groups.blacklist",), live=True),
    _key("group.filter.class", ValueType.CLASS, f"{_MM2}.DefaultGroupFilter", _CHECKPOINT,
         "MM2's own class, or that of an installed package, which decides in place of the lists"
         " (docs/policies.md).", choices=(f"{_MM2}.DefaultGroupFilter",),
         other_classes=POLICIES),
    _switch("refresh.groups.enabled", "true", _CHECKPOINT, "Whether Twinlog looks for new groups.",
         live=True),
    _seconds("refresh.groups.interval.seconds", "30", _CHECKPOINT,
             "How often Twinlog looks for new groups.", mm2_default="600", live=True),
    _switch("emit.checkpoints.enabled", "true", _CHECKPOINT, "Whether checkpoints are written."),
    _seconds("emit.checkpoints.interval.seconds", "60", _CHECKPOINT,
             "How often checkpoints are written; 0 = every 0.1 s. Where all copies of groups' topics have the"
             " source's offsets, every 5 s, unless this or `sync.group.offsets.interval.seconds` is set.",
             minimum=0, live=True),
    _switch("sync.group.offsets.enabled", "false", _CHECKPOINT,
            "Whether translated offsets are committed for groups that are not active on the target.",
         live=True),
    _seconds("sync.group.offsets.interval.seconds", "60", _CHECKPOINT,
             "How often translated offsets are committed. Where all copies of groups' topics have the"
             " source's offsets, every 5 s, unless this or `emit.checkpoints.interval.seconds` is set.",
         live=True),
    _key("checkpoints.topic.replication.factor", ValueType.INTEGER, "3", _CHECKPOINT,
         "Replication factor of the checkpoints topic; -1 = the broker's default.", minimum=-1),
)  # fmt: skip

_HEARTBEAT_KEYS = (
    _switch("emit.heartbeats.enabled", "true", _HEARTBEAT,
            "Whether heartbeats are written. Also for flows that are not enabled.", live=True),
    _seconds("emit.heartbeats.interval.seconds", "1", _HEARTBEAT,
             "How often heartbeats are written; 0 = every 0.1 s.", minimum=0, live=True),
    _key("heartbeats.topic.replication.factor", ValueType.INTEGER, "3", _HEARTBEAT,
         "Replication factor of the heartbeats topic; -1 = the broker's default.", minimum=-1),
)  # fmt: skip

_IGNORED = (
    _ignored("connector.class", ValueType.TEXT, None, _NO_CONNECT),
    _ignored("consumer.poll.timeout.ms", ValueType.INTEGER, "1000",
             "fetches wait as long as the brokers allow"),
    _ignored("metric.reporters", ValueType.LIST, None, _OWN_METRICS),
    _ignored("auto.include.jmx.reporter", ValueType.BOOLEAN, "true", _OWN_METRICS),
    _ignored("metric.names.formats", ValueType.LIST, "legacy", _OWN_METRICS),
    _ignored("add.source.alias.to.metrics", ValueType.BOOLEAN, "false", _OWN_METRICS),
    _ignored("use.incremental.alter.configs", ValueType.TEXT, "requested",
             "settings are always altered one by one"),
    _ignored("tasks.max.enforce", ValueType.BOOLEAN, "true", _NO_CONNECT),
    _ignored("connector.plugin.version", ValueType.TEXT, None, _NO_CONNECT),
    _ignored("key.converter.plugin.version", ValueType.TEXT, None, _BYTES_ONLY),
    _ignored("value.converter.plugin.version", ValueType.TEXT, None, _BYTES_ONLY),
    _ignored("header.converter.plugin.version", ValueType.TEXT, None, _BYTES_ONLY),
    _ignored("key.converter", ValueType.TEXT, None, _BYTES_ONLY),
    _ignored("value.converter", ValueType.TEXT, None, _BYTES_ONLY),
    _ignored("header.converter", ValueType.TEXT, None, _BYTES_ONLY),
    _ignored("config.action.reload", ValueType.TEXT, "restart", _NO_CONNECT),
    _ignored("errors.retry.timeout", ValueType.INTEGER, "0", _OWN_RETRIES),
    _ignored("errors.retry.delay.max.ms", ValueType.INTEGER, "60000", _OWN_RETRIES),
    _ignored("errors.tolerance", ValueType.TEXT, "none", "a record that cannot be copied is never skipped"),
    _ignored("errors.log.enable", ValueType.BOOLEAN, "false", _OWN_RETRIES),
    _ignored("errors.log.include.messages", ValueType.BOOLEAN, "false", "records are never logged"),
    _ignored("task.assigned.partitions", ValueType.LIST, None, _NO_CONNECT),
    _ignored("task.assigned.groups", ValueType.LIST, None, _NO_CONNECT),
    _ignored("task.index", ValueType.INTEGER, None, _NO_CONNECT),
    _ignored("transaction.boundary", ValueType.TEXT, "poll",
             "a transaction ends when the fetched data is drained", scope=Scope.FLOW_ONLY),
    _ignored("transaction.boundary.interval.ms", ValueType.INTEGER, None,
             "a transaction ends when the fetched data is drained", scope=Scope.FLOW_ONLY),
)  # fmt: skip

_TRANSFORMS = (
    _key("transforms", ValueType.LIST, "", ALL_SERVICES,
         "Names of transforms of Kafka Connect, in the order in which they are applied; each has "
         "`transforms.<name>.type` and more keys (docs/transforms.md)."),
    _key("predicates", ValueType.LIST, "", ALL_SERVICES,
         "Names of predicates, which say for which records a transform is applied."),
)  # fmt: skip

FLOW_KEYS: tuple[KeySpec, ...] = (
    *_COMMON,
    *_SOURCE_KEYS,
    *_CHECKPOINT_KEYS,
    *_HEARTBEAT_KEYS,
    *_TRANSFORMS,
    *_IGNORED,
)  # fmt: skip
