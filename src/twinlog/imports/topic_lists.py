"""Converts uReplicator's and Brooklin's lists of topics. Both keep topic names; consumer groups on the
source, or other stores, have their positions."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from twinlog.imports.documents import Tree
from twinlog.imports.draft import Draft, Setting
from twinlog.policy.replication import IdentityReplicationPolicy

_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_SERVING = re.compile(r"^\s*Current serving topics:\s*\[(.*)\]\s*$", re.DOTALL)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_STOPPED = ("PAUSED", "STOPPED")
_CONNECTION = re.compile(r"(kafka|kafkassl)://([^/]+)/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSide:
    """A cluster that the list does not name: `ALIAS=HOST:PORT,…` of the command line."""

    alias: str
    bootstrap_servers: str = ""

    @classmethod
    def parse(cls, text: str, default: str) -> "ListSide":
        alias, sign, servers = text.partition("=")
        if not sign and ":" in text:
            alias, servers = "", text
        return cls(alias=alias or default, bootstrap_servers=servers)


class TopicListImport:
    """Writes flows that copy the listed topics, under the same names unless a rule renames them."""

    def __init__(self, draft: Draft, source: ListSide, target: ListSide, *, group: str = "") -> None:
        """`group` committed the positions on the source; empty = unknown."""
        self._draft, self._source, self._target, self._group = draft, source, target, group

    def add(
        self,
        topics: Iterable[Setting],
        whole: Setting,
        *,
        source_servers: str = "",
        renames: Sequence[Setting] = (),
    ) -> None:
        """One flow. `whole` is the place of the list; `source_servers` are the servers in it; `renames` are
        rules of `twinlog.topic.rename`."""
        patterns: dict[str, Setting] = {}
        for topic in topics:
            if "," in topic.value:
                self._draft.report.impossible(
                    topic, "a comma ends a pattern in a properties file: write the expression without one"
                )
            elif is_internal(topic.value):
                self._draft.report.impossible(
                    topic, f"{topic.value} is an internal topic: it is never copied"
                )
            elif topic.value:
                patterns.setdefault(topic.value, topic)
        flow = f"{self._source.alias}->{self._target.alias}"
        self._cluster(self._source, whole, source_servers)
        self._cluster(self._target, whole, "")
        self._draft.set_top("emit.heartbeats.enabled", "false")
        if not patterns:
            self._draft.report.impossible(whole, "there is no topic in it")
        self._draft.decide_flow(flow, "enabled", "true" if patterns and self._group else "false")
        if self._group:
            self._draft.decide_flow(flow, "twinlog.start.group", self._group)
        else:
            self._draft.report.to_do(
                whole,
                "it is not known where the copies end: import again with --group GROUP, which committed on"
                f" the source, or write {flow}.twinlog.start.time; {flow} is switched off until then",
                becomes=f"{flow}.twinlog.start.group",
            )
        for pattern in patterns.values():
            self._draft.report.mapped(pattern, f"{flow}.topics")
        self._draft.decide_flow(flow, "topics", ", ".join(patterns))
        # The default would leave out listed topics, such as orders.replica.
        self._draft.decide_flow(flow, "topics.exclude", "")
        if renames:
            self._draft.decide_flow(flow, "twinlog.topic.rename", "; ".join(rule.value for rule in renames))
            for rule in renames:
                self._draft.report.mapped(rule, f"{flow}.twinlog.topic.rename")
        self._draft.decide_flow(flow, "replication.policy.class", _IDENTITY)
        self._draft.decide_flow(flow, "heartbeats.replication.enabled", "false")
        # Topics on the target have configs of their own, which a first sync would overwrite.
        self._draft.decide_flow(flow, "sync.topic.configs.enabled", "false")
        self._draft.decide_flow(flow, "sync.topic.acls.enabled", "false")
        self._draft.decide_flow(flow, "emit.checkpoints.enabled", "false")

    def _cluster(self, side: ListSide, whole: Setting, servers: str) -> None:
        self._draft.add_cluster(side.alias)
        known = side.bootstrap_servers or servers
        if not known:
            variable = re.sub(r"[^A-Z0-9]+", "_", f"{side.alias}_BOOTSTRAP_SERVERS".upper())
            known = f"${{env:{variable}}}"
            self._draft.use_provider("env")
            self._draft.report.to_do(
                whole,
                f"the list does not say where {side.alias} is: set the variable {variable}",
                becomes=f"{side.alias}.bootstrap.servers",
            )
        self._draft.set_cluster(side.alias, "bootstrap.servers", whole.at(known))


def is_ureplicator(text: str) -> bool:
    """The answer of its controller to `GET /topics`."""
    return _SERVING.match(text) is not None


def ureplicator_topics(text: str, draft: Draft, renames: list[Setting]) -> Iterator[Setting]:
    """The topics of the controller's answer, of a list with one per line, or of a topic mapping (`from to`),
    whose rules are added to `renames`."""
    serving = _SERVING.match(text)
    if serving is not None:
        for name in filter(None, map(str.strip, serving[1].split(","))):
            topic = Setting(value=name, place="Current serving topics")
            if _is_topic(topic, draft):
                yield _escaped(topic)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        setting = Setting(value=words[0], place=words[0][:80], line=number)
        if len(words) > 2 or not all(map(_TOPIC.fullmatch, words)):
            draft.report.impossible(
                setting, "this line is neither a topic nor a mapping of a topic to a topic"
            )
            continue
        if len(words) == 2 and words[1] != words[0]:
            renames.append(setting.at(f"{words[0]} -> {words[1]}"))
        yield _escaped(setting)


def topics_of_json(tree: Tree, draft: Draft) -> Iterator[Setting]:
    """The topics in `["orders", …]`, or in `{"topic": "orders", "numPartitions": "8"}` or a list of these."""
    for item in tree.items or (tree,):
        name = item.get("topic") if item.fields else item
        if name.is_scalar and name.scalar:
            if _is_topic(name.setting, draft):
                yield _escaped(name.setting)
        else:
            draft.report.impossible(item.setting, "this is not a topic, and has no field `topic`")


def _is_topic(setting: Setting, draft: Draft) -> bool:
    if _TOPIC.fullmatch(setting.value):
        return True
    pipeline = setting.value.startswith("@")
    draft.report.impossible(
        setting,
        f"{setting.value} is a pipeline of uReplicator's manager: ask the controllers of its routes"
        if pipeline
        else f"{setting.value[:80]!r} cannot be the name of a topic",
    )
    return False


def is_topic_json(tree: Tree) -> bool:
    items = tree.items or (tree,)
    return all(item.is_scalar or "topic" in item.fields for item in items)


def is_internal(pattern: str) -> bool:
    """Whether a pattern names one topic that no flow copies, such as `__consumer_offsets`."""
    return IdentityReplicationPolicy().is_internal_topic(pattern.replace("\\.", "."))


def _escaped(setting: Setting) -> Setting:
    """A name as a pattern that matches only itself."""
    return setting.at(setting.value.replace(".", r"\."))


def is_brooklin(tree: Tree) -> bool:
    return any(True for _ in datastreams(tree))


def datastreams(tree: Tree) -> Iterator[Tree]:
    """The datastreams in a single one, in a list, or in the answer of `GET /datastream` (`elements`)."""
    if "connectorName" in tree.fields:
        yield tree
    for item in (*tree.items, *tree.get("elements").items):
        yield from datastreams(item)


def add_datastreams(
    streams: Sequence[Tree], draft: Draft, source: ListSide, target: ListSide, *, group: str = ""
) -> None:
    """One flow for each source cluster and consumer group of the datastreams."""
    by_servers: dict[tuple[str, str], list[Setting]] = {}
    wholes: dict[tuple[str, str], Setting] = {}
    stopped: set[tuple[str, str]] = set()
    for stream in streams:
        found = _datastream(stream, draft)
        if found is not None:
            servers, topic = found
            key = servers, group or stream.get("metadata").text("group.id")
            by_servers.setdefault(key, []).append(topic)
            wholes.setdefault(key, stream.get("source", "connectionString").setting)
            if stream.text("Status").upper() in _STOPPED:
                stopped.add(key)
    for number, (key, topics) in enumerate(by_servers.items(), start=1):
        servers, own_group = key
        alias = source.alias if len(by_servers) == 1 else f"{source.alias}{number}"
        side = ListSide(
            alias=alias, bootstrap_servers=source.bootstrap_servers if len(by_servers) == 1 else ""
        )
        importer = TopicListImport(draft, side, target, group=own_group)
        importer.add(topics, wholes[key], source_servers=servers)
        if key in stopped:
            draft.decide_flow(f"{alias}->{target.alias}", "enabled", "false")


def _datastream(stream: Tree, draft: Draft) -> tuple[str, Setting] | None:
    """The servers of its source and its pattern; None if it does not copy Kafka topics under their names."""
    name, place = stream.text("name"), stream.get("source", "connectionString").setting
    match = _CONNECTION.fullmatch(place.value.strip())
    if match is None:
        draft.report.ignored(stream.setting, f"datastream {name} does not read from Kafka")
        return None
    metadata = stream.get("metadata")
    prefix = metadata.get("system.destination.destinationTopicPrefix")
    if prefix.scalar and prefix.scalar.strip():
        draft.report.impossible(
            prefix.setting,
            f"{name} puts a prefix before names: add its topics to the file yourself, with a rule of"
            " twinlog.topic.rename (docs/policies.md)",
        )
        return None
    if stream.text("Status").upper() in _STOPPED:
        draft.report.to_do(
            stream.get("Status").setting,
            f"datastream {name} was not running: its flow is switched off until you have decided",
        )
    if match[1] == "kafkassl":
        draft.report.to_do(place, "the source speaks TLS: write its security.protocol and ssl.* keys")
    for field in metadata.fields.keys() - {"group.id"}:
        draft.report.ignored(metadata.fields[field].setting, "about Brooklin itself")
    return match[2], place.at(match[3].removeprefix("^").removesuffix("$"))
