"""Converts MirrorMaker 1 (`kafka-mirror-maker.sh`), with its two files and its options, into a properties
file with one flow.

It copies only records, under the same topic names. Its positions are those of its consumer group on the
source; Twinlog begins there, and from then on stores positions on the target.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.config.keys.client import CLUSTER_CLIENT_KEYS, KEYS_BY_CLIENT
from twinlog.errors import ConfigError
from twinlog.imports.draft import Draft, Line, Report, Setting
from twinlog.policy.rename import RENAME_KEY
from twinlog.properties import Properties, Property

_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
TARGET = "target"

_RENAMES_TOPICS = "com.opencore.RenameTopicHandler"
"""Of https://github.com/opencore/mirrormaker_topic_rename, which many used: one topic per pair."""
_OF_THE_OLD_CONSUMER = ("zookeeper.connect",)
_OLD_NAMES = {"bootstrap.servers": "metadata.broker.list"}
_RESETS = {"smallest": "earliest", "largest": "latest"}
_DEFAULT_RESET = "latest"
"""The default of Java's consumer, and so of MirrorMaker 1."""
_NO_LONGER_MEANT = {
    "group.id": "",
    "auto.offset.reset": "",
    "enable.auto.commit": "positions are committed with the records",
    "auto.commit.interval.ms": "positions are committed with the records",
    "key.deserializer": "records are copied byte for byte",
    "value.deserializer": "records are copied byte for byte",
    "key.serializer": "records are copied byte for byte",
    "value.serializer": "records are copied byte for byte",
    "producer.type": "a setting of Kafka's old producer",
    "exclude.internal.topics": "internal topics are never copied",
    "partition.assignment.strategy": "partitions are spread by what they carry",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorMaker1:
    """The options of its command line."""

    consumer: Properties
    consumer_file: str
    producer: Properties
    producer_file: str
    include: str
    num_streams: int = 1
    source_alias: str = ""
    """Empty = the consumer group's name, which differs between replicators."""
    message_handler: str = ""
    message_handler_args: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorMakerFile:
    properties: str
    lines: tuple[Line, ...]


def mirror_maker_file(mirror: MirrorMaker1) -> MirrorMakerFile:
    """The properties file and a report of each setting. Raises ConfigError with file and line."""
    report = Report()
    draft = Draft(report)
    for key in _OF_THE_OLD_CONSUMER:
        old = mirror.consumer.entries.get(key)
        if old is not None:
            raise ConfigError(
                f"{mirror.consumer_file}:{old.line}: {key} is for Kafka's old consumer, which commits to"
                " ZooKeeper: give bootstrap.servers, and set the group's offsets by kafka-consumer-groups.sh"
            )
    group = _required(mirror.consumer, "group.id", mirror.consumer_file)
    source = mirror.source_alias or re.sub(r"[^A-Za-z0-9._-]", "-", group.value.strip())
    if source == TARGET:
        source = f"{TARGET}-source"
    _required(mirror.consumer, "bootstrap.servers", mirror.consumer_file)
    _required(mirror.producer, "bootstrap.servers", mirror.producer_file)
    flow = f"{source}->{TARGET}"
    _add_client(draft, source, "consumer", mirror.consumer.entries, mirror.consumer_file)
    _add_client(draft, TARGET, "producer", mirror.producer.entries, mirror.producer_file)
    draft.set_top("emit.heartbeats.enabled", "false")
    reset = mirror.consumer.entries.get("auto.offset.reset")
    chosen = _DEFAULT_RESET if reset is None else reset.value.strip().lower()
    for key, value in {
        "enabled": "true",
        "topics": include_pattern(mirror.include),
        "topics.exclude": "__consumer_offsets, __transaction_state",
        "replication.policy.class": _IDENTITY,
        "tasks.max": str(mirror.num_streams),
        "twinlog.start.group": group.value.strip(),
        "source.consumer.auto.offset.reset": _RESETS.get(chosen, chosen),
        # As brokers did when its producer wrote to a missing topic.
        "replication.factor": "-1",
        "heartbeats.replication.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",
    }.items():
        draft.decide_flow(flow, key, value)
    if mirror.message_handler or mirror.message_handler_args:
        draft.decide_flow(flow, RENAME_KEY, renames(mirror.message_handler, mirror.message_handler_args))
    draft.set_cluster(TARGET, "offset.storage.replication.factor", Setting(value="-1", place="offsets"))
    origin = f"{mirror.consumer_file} and {mirror.producer_file}"
    return MirrorMakerFile(properties=draft.render(origin=origin), lines=report.lines)


def include_pattern(text: str) -> str:
    """MirrorMaker 1's interpretation of --include: blanks and enclosing quotes are removed, commas mean
    "or"."""
    return re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))


def renames(handler: str, args: str) -> str:
    """The rules of `twinlog.topic.rename` for the one handler that is known. Raises ConfigError for others,
    which are classes of Java."""
    if handler != _RENAMES_TOPICS:
        raise ConfigError(
            f"--message.handler: Twinlog knows {_RENAMES_TOPICS} and runs no Java: say what others do with"
            " records by twinlog.transform.* (docs/transforms.md)",
            key="--message.handler",
        )
    pairs = [pair.split(",") for pair in args.split(";") if pair.strip()]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ConfigError(
            f"--message.handler.args: must be SOURCE,TARGET;SOURCE,TARGET, not {args!r}",
            key="--message.handler.args",
        )
    return "; ".join(f"{before.strip()} -> {after.strip()}" for before, after in pairs)


def _required(properties: Properties, key: str, file: str) -> Property:
    found = properties.entries.get(key)
    if found is None or not found.value.strip():
        old = properties.entries.get(_OLD_NAMES.get(key, ""))
        if old is not None:
            raise ConfigError(
                f"{file}:{old.line}: {old.key} is for Kafka's old producer: give {key}",
                metadata={"file": file, "key": key},
            )
        raise ConfigError(f"{file}: {key} is missing", metadata={"file": file, "key": key})
    return found


def _add_client(draft: Draft, alias: str, client: str, entries: Mapping[str, Property], file: str) -> None:
    draft.add_cluster(alias)
    for key, prop in entries.items():
        setting = Setting(value=prop.value.strip(), place=f"{file}: {key}", line=prop.line)
        if key in _NO_LONGER_MEANT:
            if _NO_LONGER_MEANT[key]:
                draft.report.ignored(setting, _NO_LONGER_MEANT[key])
        elif key in CLUSTER_CLIENT_KEYS:
            draft.set_cluster(alias, key, setting)
        elif key.startswith("config.providers"):
            draft.set_provider(key, setting)
        elif key in KEYS_BY_CLIENT[client]:
            draft.set_cluster(alias, f"{client}.{key}", setting)
        else:
            draft.report.ignored(setting, f"no setting of Kafka's {client}s")
