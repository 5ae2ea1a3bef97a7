"""Twinlog's own keys. All start with `twinlog.`, so MM2 can read the same file and ignores them."""

from typing import Any

from twinlog.config.keys.spec import ALL_SERVICES, KeySpec, Scope, Service, ValueType

DEFAULT_PORTS: dict[Service, int] = {
    Service.SOURCE: 17401,
    Service.CHECKPOINT: 17402,
    Service.HEARTBEAT: 17403,
    Service.CONFIGSYNC: 17404,
}
DEFAULT_METRICS_PORTS: dict[Service, int] = {
    Service.SOURCE: 17411,
    Service.CHECKPOINT: 17412,
    Service.HEARTBEAT: 17413,
    Service.CONFIGSYNC: 17414,
}
SPARK_CONF_PREFIX = "twinlog.spark.conf."

_SOURCE = (Service.SOURCE,)
_CHECKPOINT = (Service.CHECKPOINT,)
_CONFIGSYNC = (Service.CONFIGSYNC,)


def _key(name: str, value_type: ValueType, default: str | None, services: tuple[Service, ...],
         meaning: str, scope: Scope = Scope.TOP, **more: Any) -> KeySpec:  # fmt: skip
    return KeySpec(name, value_type, default, services, meaning, scope, **more)


def _endpoint_keys(service: Service) -> tuple[KeySpec, ...]:
    port = DEFAULT_PORTS[service]
    return (
        _key(f"twinlog.{service}.listen", ValueType.ADDRESS, f"127.0.0.1:{port}", (service,),
             "The address on which the service's gRPC server listens; port 0 = any free port."),
        _key(f"twinlog.{service}.endpoint", ValueType.ADDRESS, None, ALL_SERVICES,
             "The address at which other services and the command line reach this service. Default: the"
             " listen address."),
        _key(f"twinlog.{service}.metrics.listen", ValueType.ADDRESS,
             f"127.0.0.1:{DEFAULT_METRICS_PORTS[service]}", (service,),
             "The address on which the service serves metrics for Prometheus, in plain HTTP; port 0 = any"
             " free port; empty = no metrics. If the default port is in use, the service takes a free one."),
    )  # fmt: skip


TWINLOG_KEYS: tuple[KeySpec, ...] = (
    *(spec for service in Service for spec in _endpoint_keys(service)),
    _key("twinlog.metrics.strimzi.cluster", ValueType.TEXT, "", ALL_SERVICES,
         "The value of the label `strimzi_io_cluster` in metrics for Strimzi's Grafana dashboard of"
         " MirrorMaker 2: the services then also show the names and labels that this dashboard uses"
         " (docs/metrics.md). Empty = off."),
    _key("twinlog.source.worker.endpoint", ValueType.ADDRESS, "", _SOURCE,
         "The address at which Spark tasks on other machines reach the source service. Empty: the address on"
         " which it listens for them."),
    _key("twinlog.source.worker.listen", ValueType.ADDRESS, "", _SOURCE,
         "The address on which the source service listens for its tasks, always with TLS and not on its gRPC"
         " port. Empty: the host of `twinlog.source.listen` with the port of"
         " `twinlog.source.worker.endpoint`, or any free port."),
    _key("twinlog.spark.master", ValueType.TEXT, "local[*]", _SOURCE,
         "The Spark master that runs the copying tasks."),
    _key("twinlog.log.level", ValueType.TEXT, "info", ALL_SERVICES, "The lowest level that is logged.",
         choices=("debug", "info", "warning", "error")),
    _key("twinlog.log.format", ValueType.TEXT, "auto", ALL_SERVICES,
         "The format of log lines; auto = console on a terminal, else json.",
         choices=("auto", "json", "console")),
    _key("twinlog.drain.seconds", ValueType.NUMBER, "1", ALL_SERVICES,
         "At shutdown, how long a service continues after it reports NOT_SERVING, so that callers notice.",
         unit="s", minimum=0),
    _key("twinlog.grace.seconds", ValueType.NUMBER, "20", ALL_SERVICES,
         "At shutdown, how long the loops may take to finish before they are cancelled.", unit="s",
         minimum=0),
    _key("twinlog.owner.timeout.seconds", ValueType.NUMBER, "10",
         (Service.CHECKPOINT, Service.HEARTBEAT, Service.CONFIGSYNC),
         "If several processes of a service have the same flow, another one takes it over after the owner was"
         " silent for this long. Not below the target's group.min.session.timeout.ms (6 s by default).",
         unit="s", minimum=1),
    _key("twinlog.epoch.seconds", ValueType.NUMBER, "30", _SOURCE,
         "The shortest time for which the tasks of a flow keep their partitions, unless topics or the load"
         " change. After it they continue until another spread of the partitions over the slots would be much"
         " better.",
         scope=Scope.FLOW, unit="s", minimum=0),
    _key("twinlog.epoch.max.seconds", ValueType.NUMBER, "600", _SOURCE,
         "The longest time for which the tasks of a flow keep their partitions. If `twinlog.epoch.seconds` is"
         " larger, that value counts.",
         scope=Scope.FLOW, unit="s", minimum=0),
    _key("twinlog.lease.seconds", ValueType.NUMBER, "10", _SOURCE,
         "How long a task copies without a message from its driver before it ends.", scope=Scope.FLOW,
         unit="s", minimum=1),
    _key("twinlog.stalled.seconds", ValueType.NUMBER, "30", _SOURCE,
         "A partition that has records to copy, is not paused and has not moved for this long is STALLED. A"
         " task that has reported nothing for this long, and for 15 s at least, is replaced.",
         scope=Scope.FLOW, unit="s", minimum=1),
    _key("twinlog.max.slots", ValueType.INTEGER, None, _SOURCE,
         "The most slots that copy at the same time; wins over `tasks.max`. Default: as many as Spark has"
         " cores.", scope=Scope.FLOW, minimum=1, maximum=1024),
    _key("twinlog.on.data.loss", ValueType.TEXT, "record", _SOURCE,
         "What to do when the source no longer has the next records: `record` the gap and continue, or "
         "`fail` the partition.", scope=Scope.FLOW, choices=("record", "fail")),
    _key("twinlog.verify.interval.seconds", ValueType.NUMBER, "0", _SOURCE,
         "How often the source service verifies the copies of a flow: all new records, and one partition from"
         " its beginning (docs/proof.md). 0 = never.", scope=Scope.FLOW, unit="s", minimum=0),
    _key("twinlog.verify.max.bytes.per.second", ValueType.INTEGER, "10000000", _SOURCE,
         "The most that this verification reads from each cluster per second; 0 = no limit.",
         scope=Scope.FLOW, unit="bytes", minimum=0),
    _key("twinlog.delay.seconds", ValueType.NUMBER, "0", _SOURCE,
         "Copy only records that are older than this, by their timestamps: a mistake on the source can be"
         " kept out of the copy (docs/copy.md). 0 = no delay.",
         scope=Scope.FLOW, unit="s", minimum=0),
    _key("twinlog.start.group", ValueType.TEXT, "", _SOURCE,
         "A consumer group of the source, such as that of another replicator (docs/migration/): partitions"
         " without a stored position begin at its committed offsets. For partitions without a committed"
         " offset `twinlog.start.time` decides, or else `auto.offset.reset`.", scope=Scope.FLOW),
    _key("twinlog.start.time", ValueType.TEXT, "", _SOURCE,
         "Partitions without a stored position begin at their first record of this time or later, such as"
         " 2026-01-31T12:00:00Z (without a zone it is UTC), also those of topics that are selected later."
         " Topics and partitions that are created while the flow runs are copied from their beginning.",
         scope=Scope.FLOW),
    _key("twinlog.copy.until", ValueType.TEXT, None, _SOURCE,
         "The source offsets at which a copy ends, in JSON by topic and partition; partitions that it does"
         " not name are not copied. `twinlog copy` sets it. Default: the copy does not end.",
         scope=Scope.FLOW),
    _key("twinlog.coalesce.below.bytes", ValueType.INTEGER, "65536", _SOURCE,
         "If the batches of a backlog are smaller than this on average, their records are packed into larger"
         " batches; 0 = never.", scope=Scope.FLOW, unit="bytes", minimum=0),
    _key("twinlog.batch.max.uncompressed.bytes", ValueType.INTEGER, "134217728", _SOURCE,
         "The largest uncompressed size of a batch that Twinlog decompresses; a partition with a larger one"
         " stops with BATCH_TOO_LARGE.",
         scope=Scope.FLOW, unit="bytes", minimum=1048576, maximum=2147483647),
    _key("twinlog.recode.compression.level", ValueType.INTEGER, None, _SOURCE,
         "Compression level of batches that Twinlog packs itself. Default: depends on the codec.",
         scope=Scope.FLOW, minimum=-7, maximum=22),
    _key("twinlog.offsets", ValueType.TEXT, "auto", _SOURCE,
         "Which offsets the records of a copy have: `preserved` = those of the source, and partitions for"
         " which that is not possible are FAULTED; `translated` = offsets of its own; `auto` = preserved"
         " where possible. Decided when a copy begins (docs/offsets.md).", scope=Scope.FLOW,
         choices=("auto", "preserved", "translated")),
    _key("twinlog.weight", ValueType.LIST, "", _SOURCE,
         "How a limit of the flow (`twinlog throttle`) is divided among topics that would take more: patterns"
         " of source topics with weights, like `payments:10, logs.*:0.1`. The first match counts, others"
         " weigh 1.",
         scope=Scope.FLOW),
    _key("twinlog.offsets.preserved.topics", ValueType.LIST, "", _SOURCE,
         "Source topics for which `twinlog.offsets` is `preserved`: names and regular expressions that match"
         " the whole name.", scope=Scope.FLOW),
    _key("twinlog.offsets.translated.topics", ValueType.LIST, "", _SOURCE,
         "Source topics for which `twinlog.offsets` is `translated`; wins over"
         " `twinlog.offsets.preserved.topics`.", scope=Scope.FLOW),
    _key("twinlog.offsets.fill.max", ValueType.INTEGER, "100000000", _SOURCE,
         "How many offsets before the first record of a partition Twinlog fills at most to preserve offsets"
         " (docs/offsets.md); copies of partitions with more are translated. 100 million take about 80 MB on"
         " each replica of the target until Kafka deletes them.",
         scope=Scope.FLOW, unit="offsets", minimum=0),
    _key("twinlog.offsets.fill.total", ValueType.INTEGER, "1000000000", _SOURCE,
         "The same limit for all partitions of a flow together.",
         scope=Scope.FLOW, unit="offsets", minimum=0),
    _key("twinlog.topic.rename", ValueType.TEXT, "", ALL_SERVICES,
         "Other names for the copies of some topics: rules `TOPIC -> NEW NAME`, separated by semicolons;"
         " `(pattern)` on the left is `$1` on the right (docs/policies.md).", scope=Scope.FLOW),
    _key("twinlog.transform.topics", ValueType.LIST, "", ALL_SERVICES,
         "The source topics whose records Spark filters or changes (docs/transforms.md): names and regular"
         " expressions that match the whole name. Their copies are translated.", scope=Scope.FLOW),
    _key("twinlog.transform.where", ValueType.TEXT, "", ALL_SERVICES,
         "A predicate in Spark SQL over the columns `topic`, `partition`, `offset`, `timestamp`, `key`,"
         " `value` and `headers`; records for which it is not true are not copied. Empty = all are.",
         scope=Scope.FLOW),
    _key("twinlog.transform.key", ValueType.TEXT, "", ALL_SERVICES,
         "An expression in Spark SQL over the same columns: the key of the copy, as binary or string. Empty ="
         " the record's; so, too, for the following three.", scope=Scope.FLOW),
    _key("twinlog.transform.value", ValueType.TEXT, "", ALL_SERVICES,
         "The value of the copy, as binary or string; null makes a tombstone.", scope=Scope.FLOW),
    _key("twinlog.transform.headers", ValueType.TEXT, "", ALL_SERVICES,
         "The headers of the copy, as array<struct<key:string,value:binary>> or map<string,binary>.",
         scope=Scope.FLOW),
    _key("twinlog.transform.timestamp", ValueType.TEXT, "", ALL_SERVICES,
         "The timestamp of the copy, as timestamp or as milliseconds (bigint).", scope=Scope.FLOW),
    _key("twinlog.transform.topic", ValueType.TEXT, "", ALL_SERVICES,
         "A topic of the source as whose record it is copied (docs/transforms.md#routes); null = its own.",
         scope=Scope.FLOW),
    _key("twinlog.transform.python", ValueType.TEXT, "", ALL_SERVICES,
         "`package.module:function`: a Python function that takes a DataFrame with these columns, and returns"
         " it changed. The expressions are applied to its result.", scope=Scope.FLOW),
    _key("twinlog.transform.on.error", ValueType.TEXT, "stop", ALL_SERVICES,
         "What happens to a record that cannot be changed: `stop` = its partition is FAULTED, and tries it"
         " again; `skip` = it is not copied, and is counted; `dead-letter` = the same, and it goes to"
         " `twinlog.dead.letter.topic`.", scope=Scope.FLOW, choices=("stop", "skip", "dead-letter")),
    _key("twinlog.dead.letter.topic", ValueType.TEXT, "", ALL_SERVICES,
         "The topic of the target that gets records which cannot be changed, as the source has them, with"
         " Kafka Connect's headers `__connect.errors.*`. It is created with one partition.",
         scope=Scope.FLOW),
    _key("twinlog.provenance.headers", ValueType.BOOLEAN, "false", ALL_SERVICES,
         "Whether copies of the records of `twinlog.transform.topics` get the header `twinlog.origin`, with"
         " cluster, topic, partition, offset and timestamp of the record; groups then continue exactly"
         " (docs/transforms.md).", scope=Scope.FLOW),
    _key("twinlog.transform.timeout.seconds", ValueType.NUMBER, "60", ALL_SERVICES,
         "How long Spark may take for the records of one fetch; after that they count as not changeable.",
         scope=Scope.FLOW, unit="s", minimum=1),
    _key("twinlog.sync.mode", ValueType.TEXT, "automatic", _CONFIGSYNC,
         "`automatic` plans and applies each interval; `manual` plans, and changes wait for `twinlog apply`.",
         scope=Scope.FLOW, choices=("automatic", "manual"), live=True),
    _key("twinlog.sync.topic.configs.include", ValueType.LIST, ".*", _CONFIGSYNC,
         "Topic configs that follow the source: names and regular expressions. All others stay as they are on"
         " the target; `config.properties.exclude` wins.", scope=Scope.FLOW, live=True),
    _key("twinlog.sync.topic.configs.fixed", ValueType.TEXT, "", _CONFIGSYNC,
         "Topic configs with a fixed value on copies; the source's value is ignored: rules"
         " `TOPIC config=value ...`, by the name of the source topic and separated by semicolons. The first"
         " rule that matches counts; wins over `config.properties.exclude`.", scope=Scope.FLOW, live=True),
    _key("twinlog.sync.topic.acls.mode", ValueType.TEXT, "mm2", _CONFIGSYNC,
         "Which ACLs are copied: `mm2` = literal topics without WRITE, nothing is ever deleted; `read-only` "
         "= reading rights on topics and groups, prefixes too; `full` = every right, transactional ids too. "
         "The last two follow removals.",
         scope=Scope.FLOW, choices=("mm2", "read-only", "full"), live=True),
    _key("twinlog.sync.client.quotas.enabled", ValueType.BOOLEAN, "false", _CONFIGSYNC,
         "Whether client quotas are copied.", scope=Scope.FLOW, live=True),
    _key("twinlog.sync.topic.deletes.enabled", ValueType.BOOLEAN, "false", _CONFIGSYNC,
         "Whether the copy of a source topic is deleted after the source topic was deleted.",
         scope=Scope.FLOW, live=True),
    _key("twinlog.sync.topic.deletes.grace.seconds", ValueType.NUMBER, "86400", _CONFIGSYNC,
         "How long a source topic must have been gone before its copy is deleted.",
         scope=Scope.FLOW, unit="s", minimum=0, live=True),
    _key("twinlog.sync.topic.deletes.max.per.hour", ValueType.INTEGER, "10", _CONFIGSYNC,
         "The most copies that are deleted within an hour.", scope=Scope.FLOW, minimum=1, live=True),
    _key("twinlog.offset-syncs.min.compaction.lag.seconds", ValueType.NUMBER, "604800", _SOURCE,
         "How long the offset-syncs topic keeps every sync; set as min.compaction.lag.ms when Twinlog "
         "creates it.", scope=Scope.FLOW, unit="s", minimum=0),
    _key("twinlog.translation.max.bytes", ValueType.INTEGER, "268435456", _CHECKPOINT,
         "The most that is read from both logs in one checkpoint interval to translate offsets exactly; the "
         "rest follows in the next. 0 = translate by offset syncs alone, as MirrorMaker 2 does.",
         scope=Scope.FLOW,
         unit="bytes", minimum=0),
    _key("twinlog.sync.group.deletes.enabled", ValueType.BOOLEAN, "false", _CHECKPOINT,
         "Whether a translated group is deleted on the target after it was deleted on the source.",
         scope=Scope.FLOW),
    _key("twinlog.sync.group.deletes.grace.seconds", ValueType.NUMBER, "86400", _CHECKPOINT,
         "How long a group must have been gone from the source before it is deleted on the target, also "
         "across restarts.", scope=Scope.FLOW, unit="s", minimum=0),
    _key("twinlog.sync.group.deletes.max.per.hour", ValueType.INTEGER, "10", _CHECKPOINT,
         "The most groups that are deleted on the target within an hour.", scope=Scope.FLOW, minimum=1),
)  # fmt: skip
