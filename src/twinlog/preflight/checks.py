"""Judges the facts: every check is a function of facts. Pure."""

import errno
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from twinlog.batches import BATCH_LIMITS, largest_batch_bytes
from twinlog.config import NoticeLevel, Service
from twinlog.config.flow.filters import config_property_filter
from twinlog.config.flow.settings import fixed_configs
from twinlog.errors import ConfigError, KafkaError, TwinlogError
from twinlog.filters import PatternList
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import ConfigEntry, ConfigSource
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import ClusterAlias
from twinlog.policy.expected_offsets import offsets_rule
from twinlog.policy.internal_topics import source_offsets_topic
from twinlog.policy.rename import RENAME_KEY
from twinlog.policy.replication import LONGEST_NAME
from twinlog.preflight.adoption import check_offsets
from twinlog.preflight.facts import (
    CheckedFlow,
    ClusterFacts,
    Facts,
    Finding,
    TopicFacts,
    check_loops,
    copied_back,
    error,
    fine,
    own_topics,
    warning,
)
from twinlog.preflight.rights import check_rights, not_checked, servers_of
from twinlog.printable import listed
from twinlog.service.access.exposure import lacks

OLDEST_RELEASE: Final = "2.8"
"""Transactions that survive a restart of the producer (KIP-447, KIP-360) came with it."""

_EXCLUDE: Final = "config.properties.exclude"
_NOT_COPIED: Final = frozenset({ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER})
_NO_RIGHT: Final = "TOPIC_UNAUTHORIZED"
_LOGIN: Final = frozenset({"AUTHENTICATION_FAILED", "SASL_MECHANISM_REFUSED"})
_TOKEN: Final = frozenset({"LOGIN_TOKEN_REFUSED", "LOGIN_TOKEN_UNAVAILABLE"})
_CONNECTION_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"
_NEVER: Final = 9_223_372_036_854_775_807


def judge(facts: Facts) -> list[Finding]:
    """All findings: of the file, cluster by cluster, then flow by flow."""
    findings = list(check_file(facts))
    findings += [finding for cluster in facts.clusters.values() for finding in check_cluster(cluster)]
    back = copied_back(facts.flows)
    for flow in facts.flows:
        findings += check_transform(flow)
        source, target = facts.clusters[flow.flow.source], facts.clusters[flow.flow.target]
        if source.unreachable is not None or target.unreachable is not None:
            continue
        findings += check_ends(flow, source, target)
        findings += check_rules(flow)
        findings += check_translated(flow)
        findings += check_renames(flow, source)
        findings += check_factors(flow, facts.clusters)
        findings += check_compaction(flow)
        for topic in flow.topics:
            findings += check_topic(flow, topic, target, is_back=(flow.flow, topic.name) in back)
        findings += check_offsets(flow, facts.flows)
        findings += check_unanswered(flow)
        findings += check_rights(flow, facts.clusters)
    findings += check_loops(facts)
    findings += check_listens(facts)
    return findings


def check_file(facts: Facts) -> Iterator[Finding]:
    """Notices from reading the file: misspelt keys, keys without effect."""
    for notice in facts.notices:
        make = error if notice.is_mistake else warning if notice.level is NoticeLevel.WARNING else fine
        place = f"{facts.file}:{notice.line}" if notice.line else facts.file
        yield make(place, "configuration", f"{notice.key}: {notice.text}")
    if not facts.flows:
        one, other, *_ = [*facts.aliases, "A", "B"]
        yield error(
            facts.file,
            "flows",
            "no flow is enabled: nothing would be copied",
            f"write {one}->{other}.enabled = true",
        )


def check_transform(flow: CheckedFlow) -> Iterator[Finding]:
    """What Spark says of the flow's expressions."""
    match flow.transform:
        case True:
            yield fine(str(flow.flow), "transform", "Spark understands twinlog.transform.*")
        case TwinlogError(reason="TRANSFORM_REFUSED") as refusal:
            yield error(str(flow.flow), "transform", str(refusal), "correct the key (docs/transforms.md)")
        case TwinlogError() as problem:
            remedy = "the source service does it when it starts"
            yield not_checked(flow, "whether Spark understands twinlog.transform.*", str(problem), remedy)


def check_translated(flow: CheckedFlow) -> Iterator[Finding]:
    """Copies that have the source's offsets, and with this file lose them."""
    rule, by_key = offsets_rule(flow.config), defaultdict[str, list[str]](list)
    for topic in flow.topics:
        if topic.is_preserved and (key := rule.translated_by(topic.name)):
            by_key[key].append(topic.name)
    for key, names in by_key.items():
        told = "the copy has the source's offsets, and gets its own with its next record, for good"
        yield warning(str(flow.flow), key, f"{listed(names)}: {told}", "leave them out of it to keep them")


def check_listens(facts: Facts) -> Iterator[Finding]:
    """Services that other machines can reach: everyone there could control them."""
    for name, address in facts.listens.items():
        service = Service(name)
        missing = lacks(facts.security, service)
        if address.is_loopback or not missing:
            continue
        is_allowed = facts.security.port(service).insecure
        anyway = "" if is_allowed else f"; twinlog.{name}.insecure = true allows it to start anyway"
        yield (warning if is_allowed else error)(
            name,
            "listen address",
            f"{address} can be reached from other machines, and there is no {missing}: everybody who reaches"
            " it may change what is copied",
            f"set the twinlog.tls and twinlog.auth keys (docs/security.md), or twinlog.{name}.listen to"
            f" 127.0.0.1{anyway}",
        )


def check_cluster(cluster: ClusterFacts) -> Iterator[Finding]:
    """Reachability and version."""
    if cluster.unreachable is not None:
        yield error(
            cluster.alias,
            "reachable",
            str(cluster.unreachable),
            _remedy(cluster.alias, cluster.unreachable, cluster.outage),
        )
        return
    outage = cluster.outage
    up = cluster.broker_count - len(outage.brokers)
    of_all = f"{up} of {_brokers(cluster)}" if outage.brokers else _brokers(cluster)
    yield fine(cluster.alias, "reachable", f"{of_all}, cluster id {cluster.cluster_id}")
    if outage:
        min_isr = cluster.rules.min_isr
        refusing = sum(count for in_sync, count in outage.in_sync.items() if in_sync < min_isr)
        so = f"; that take no writes, which need {min_isr} in sync: {refusing:,}" if refusing else ""
        make = error if outage.judged(cluster.alias, waits=refusing > 0).blocks else warning
        yield make(cluster.alias, "brokers", f"{outage.told(cluster.alias)}{so}", outage.remedy)
    if _number(cluster.release) < _number(OLDEST_RELEASE):
        yield error(
            cluster.alias,
            "version",
            f"Kafka {cluster.release} is too old: at least {OLDEST_RELEASE} is required",
        )
    else:
        yield fine(cluster.alias, "version", f"Kafka {cluster.release} or later")


def _remedy(alias: str, failure: KafkaError | ConfigError, outage: Outage) -> str:
    if isinstance(failure, ConfigError):
        return f"correct {alias}.{failure.metadata['key']}" if "key" in failure.metadata else ""
    if failure.reason in _LOGIN:
        return f"check {alias}.sasl.mechanism and {alias}.sasl.jaas.config, and that the user exists"
    if failure.reason in _TOKEN:
        return f"check {alias}.sasl.oauthbearer.* and the token server or file"
    if _CONNECTION_REFUSED in str(failure):
        return f"{outage.remedy}, or correct {alias}.bootstrap.servers"
    return f"check {alias}.bootstrap.servers, and {alias}.security.protocol and {alias}.ssl.*"


def check_ends(flow: CheckedFlow, source: ClusterFacts, target: ClusterFacts) -> Iterator[Finding]:
    """Two clusters, and something to replicate."""
    about = str(flow.flow)
    if source.cluster_id == target.cluster_id:
        yield error(
            about,
            "two clusters",
            f"both ends are one cluster ({source.cluster_id})",
            f"correct {source.alias}.bootstrap.servers or {target.alias}.bootstrap.servers",
        )
    else:
        yield fine(about, "two clusters", "the ends are different clusters")
    absent = [name for name, told in flow.unseen.items() if told.reason == KafkaReason.TOPIC_UNKNOWN]
    if absent:
        yield fine(
            about,
            "topics",
            f"{flow.selector.topic_filter.include.key} names {listed(absent)}, which {source.alias} does not"
            " have: copied once it has",
        )
    if flow.left_out:
        yield warning(
            about,
            "topics",
            f"topics that are copied now and no longer with this file: {len(flow.left_out)}:"
            f" {listed(flow.left_out)}",
            "check topics and topics.exclude",
        )
    if flow.topics:
        named = listed([topic.name for topic in flow.topics])
        yield fine(
            about, "topics", f"{len(flow.topics)} of {len(source.topics)} topics are replicated: {named}"
        )
    else:
        yield warning(
            about,
            "topics",
            "the rules select no topic of the source",
            "check topics and topics.exclude, and the right to DESCRIBE the topics: --acls prints it",
        )


def check_unanswered(flow: CheckedFlow) -> Iterator[Finding]:
    """What silent brokers leave open: a log without its leader, a new topic without a controller."""
    unread = {topic.name: topic.unread for topic in flow.topics if topic.unread is not None}
    if unread:
        what = f"which offsets the copies of {listed([*unread])} will have, and records without a key"
        yield not_checked(flow, what, next(iter(unread.values())))
    target = flow.flow.target
    creations = [
        *((target, topic.target_name, topic.creation) for topic in flow.topics),
        *((topic.cluster, topic.name, topic.creation) for topic in flow.internal),
    ]
    for alias in (flow.flow.source, target):
        unknown = {
            name: error
            for cluster, name, error in creations
            if cluster == alias and error is not None and error.retriable
        }
        if unknown:
            what = f"whether {listed([*unknown])} can be created on {alias}"
            yield not_checked(flow, what, next(iter(unknown.values())))


def check_rules(flow: CheckedFlow) -> Iterator[Finding]:
    """Rules that were changed while the flow ran: everything else is checked with those in force."""
    if isinstance(flow.rules_unknown, KafkaError):
        what = "rules that were changed live; the file was checked without them"
        yield not_checked(flow, what, flow.rules_unknown)
    elif flow.rules_unknown is not None:
        check = "rights" if flow.rules_unknown.reason == _NO_RIGHT else "live rules"
        yield error(str(flow.flow), check, f"{flow.rules_unknown}. The file was checked without them")
    for sentence in flow.rules:
        yield warning(str(flow.flow), "live rules", sentence)


def check_factors(flow: CheckedFlow, clusters: Mapping[ClusterAlias, ClusterFacts]) -> Iterator[Finding]:
    """Replication factors against live brokers, and against what the brokers ask of every write: of copies,
    and of each topic of the services' own that is missing, on the cluster where it is created."""
    config, about = flow.config, str(flow.flow)
    there = {(own.cluster, own.name) for own in flow.internal if not isinstance(own.operations, KafkaError)}
    wanted = {(flow.flow.target, "replication.factor"): config.configsync.replication_factor} | {
        (own.cluster, own.factor_key): own.factor
        for own in own_topics(config, flow.selector.policy)
        if (own.cluster, own.name) not in there
    }
    for (alias, key), configured in wanted.items():
        cluster = clusters[alias]
        factor, min_isr = cluster.rules.factor(configured), cluster.rules.min_isr
        if factor > cluster.broker_count:
            yield error(
                about,
                key,
                f"{factor} replicas on {alias}, which has {_brokers(cluster)}",
                f"lower {key}, or add brokers to {alias}",
            )
        elif cluster.rules.refuse_writes(factor=factor, min_isr=min_isr):
            yield error(
                about,
                key,
                f"{factor} replicas on {alias}, whose brokers want {min_isr} in sync: writes fail",
                f"raise {key}, or lower min.insync.replicas of the brokers of {alias}",
            )
        else:
            yield fine(about, key, f"{factor} on {alias}")


def check_compaction(flow: CheckedFlow) -> Iterator[Finding]:
    """Topics of ours that grow for days, and that every process reads whole. The services change those that
    MirrorMaker 2 has created, if they may."""
    for topic in flow.internal:
        of_connect = (
            topic.name == flow.config.source.offset_storage.topic != source_offsets_topic(flow.flow.source)
        )
        may_change = not isinstance(topic.operations, KafkaError) and "ALTER_CONFIGS" in topic.operations
        if not topic.missing_settings or (may_change and not of_connect):
            continue
        settings = ",".join(f"{name}={value}" for name, value in topic.missing_settings.items())
        yield warning(
            f"{flow.flow} {topic.name}",
            "compaction",
            f"{topic.cluster} compacts it late: after days it is large, and every start reads all of it",
            f"kafka-configs.sh --bootstrap-server {servers_of(flow.config)[topic.cluster]} --command-config"
            f" admin.properties --alter --entity-type topics --entity-name {topic.name} --add-config"
            f" {settings}",
        )


def check_renames(flow: CheckedFlow, source: ClusterFacts) -> Iterator[Finding]:
    """Topics that are not copied because another topic has, or would have, the name of their copy."""
    for name in sorted(source.topics):
        decision = flow.selector.decide(name)
        if not decision.selected and decision.rule.startswith(RENAME_KEY):
            yield error(
                f"{flow.flow} {name}",
                "rename",
                f"it is not copied: {decision.rule.removeprefix(f'{RENAME_KEY}: ')}",
                f"{RENAME_KEY} (docs/policies.md)",
            )


def check_topic(
    flow: CheckedFlow, topic: TopicFacts, target: ClusterFacts, *, is_back: bool
) -> Iterator[Finding]:
    """One topic: its name, its message sizes, its keys, its timestamps. `is_back`: another flow copies its
    copy back, so that others may write to both."""
    about = f"{flow.flow} {topic.name}"
    if len(topic.target_name) > LONGEST_NAME:
        yield error(
            about,
            "name",
            f"that of its copy has {len(topic.target_name)} characters, Kafka allows {LONGEST_NAME}",
            "exclude the topic, or take a shorter alias",
        )
    keeps_names = not flow.selector.policy.tracks_topic_sources
    if keeps_names and not is_back and not isinstance(topic.target, KafkaError):
        yield warning(
            about,
            "name",
            f"{topic.target_name} exists on {flow.flow.target}: records are added to its content",
            "make sure that nothing else writes to it",
        )
    if isinstance(topic.source_configs, KafkaError):
        return
    yield from _check_sizes(about, flow, topic, topic.source_configs, target)
    yield from _check_keys(about, flow, topic, topic.source_configs, target)
    yield from _check_timestamps(about, flow, topic, topic.source_configs, target)


def _check_sizes(
    about: str, flow: CheckedFlow, topic: TopicFacts, source: Sequence[ConfigEntry], target: ClusterFacts
) -> Iterator[Finding]:
    """MM2 copies only the topic's own limits, not one raised on the source's brokers."""
    allowed = largest_batch_bytes({entry.name: entry.value for entry in source})
    sizes, segments = (_entry(source, name) for name in BATCH_LIMITS)
    there = min(
        _on_target(flow, topic, sizes, target, "message.max.bytes", 1_048_588),
        _on_target(flow, topic, segments, target, "log.segment.bytes", 1 << 30),
    )
    if sizes is not None and allowed is not None and allowed > there:
        yield warning(
            about,
            "message size",
            f"the source takes {allowed} bytes, the target will take {there}: larger records will be refused",
            f"set max.message.bytes on the source topic, or message.max.bytes on {target.alias}'s brokers; a"
            " record must also fit into segment.bytes",
        )


def _check_keys(
    about: str, flow: CheckedFlow, topic: TopicFacts, source: Sequence[ConfigEntry], target: ClusterFacts
) -> Iterator[Finding]:
    """A compacted topic takes no record without a key."""
    cleanup = _entry(source, "cleanup.policy")
    there = _value_on_target(flow, topic, cleanup, target, "log.cleanup.policy")
    if "compact" in there and cleanup is not None and "compact" not in (cleanup.value or ""):
        mend = f"set cleanup.policy={cleanup.value} on {topic.target_name}"
        if cleanup.name in fixed_configs(flow.config.configsync.fixed_configs, topic.name):
            mend = "take cleanup.policy out of twinlog.sync.topic.configs.fixed"
        yield warning(
            about,
            "keys",
            f"{topic.target_name} is compacted, {topic.name} is not: records without a key will be refused",
            f"{mend}, unless every record has a key",
        )
    elif "compact" in there and topic.keyless:
        partition, offset = min(topic.keyless.items())
        more = f", and {len(topic.keyless) - 1} more partitions have some" if len(topic.keyless) > 1 else ""
        yield warning(
            about,
            "keys",
            f"record {offset} of {topic.name}-{partition} has no key: it is older than the topic's"
            f" compaction, and {topic.target_name} will refuse it{more}",
            "let the source compact the topic first, which drops such records; or see"
            " `twinlog explain reason RECORD_INVALID`",
        )


def _check_timestamps(
    about: str, flow: CheckedFlow, topic: TopicFacts, source: Sequence[ConfigEntry], target: ClusterFacts
) -> Iterator[Finding]:
    kind = _entry(source, "message.timestamp.type")
    if kind is not None and kind.value == "LogAppendTime":
        yield warning(
            about,
            "timestamps",
            "the source stamps records itself (LogAppendTime); the copy keeps these times",
        )
    if _value_on_target(flow, topic, kind, target, "log.message.timestamp.type") == "LogAppendTime":
        yield warning(
            about,
            "timestamps",
            f"{flow.flow.target} stamps the copies itself (LogAppendTime): the records' own times are lost",
            f"set message.timestamp.type=CreateTime on {topic.target_name}, or log.message.timestamp.type on "
            f"{target.alias}'s brokers",
        )
    for name, broker_name, words in (
        ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", "older"),
        ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", "newer"),
    ):
        allowed = _entry(source, name)
        if allowed is None:
            continue
        default = _NEVER if words == "older" else 3_600_000
        there = _on_target(flow, topic, allowed, target, broker_name, default)
        if int(allowed.value or _NEVER) > there:
            yield warning(
                about,
                "timestamps",
                f"the target will refuse records over {there} ms {words} than its clock; the source does not",
                f"set {name} on the source topic, or {broker_name} on {target.alias}'s brokers",
            )


def _on_target(
    flow: CheckedFlow,
    topic: TopicFacts,
    source: ConfigEntry | None,
    target: ClusterFacts,
    broker_name: str,
    default: int,
) -> int:
    """The target topic's limit, present or after its creation or config sync."""
    return int(_value_on_target(flow, topic, source, target, broker_name) or default)


def _value_on_target(
    flow: CheckedFlow, topic: TopicFacts, source: ConfigEntry | None, target: ClusterFacts, broker_name: str
) -> str:
    """Empty when no config sets it."""
    if source is None:
        return target.broker_configs.get(broker_name, "")
    settings = flow.config.configsync
    fixed = fixed_configs(settings.fixed_configs, topic.name).get(source.name)
    if fixed is not None:
        return fixed.value
    exclude = PatternList(_EXCLUDE, settings.config_properties_exclude)
    follows = config_property_filter(flow.config).matches(source.name) and not exclude.matches(source.name)
    if source.source not in _NOT_COPIED and follows:
        return source.value or ""
    if not isinstance(topic.target_configs, KafkaError):
        present = _entry(topic.target_configs, source.name)
        if present is not None:
            return present.value or ""
    return target.broker_configs.get(broker_name, "")


def _entry(entries: Sequence[ConfigEntry], name: str) -> ConfigEntry | None:
    return next((entry for entry in entries if entry.name == name and entry.value), None)


def _brokers(cluster: ClusterFacts) -> str:
    return "1 broker" if cluster.broker_count == 1 else f"{cluster.broker_count} brokers"


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
