"""The settings of one flow for the source service: the copy, its positions and its offset syncs."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from twinlog.config.client_settings import READ_COMMITTED, FlowClients
from twinlog.config.flow.settings import (
    AutoOffsetReset,
    OffsetsSettings,
    OffsetStorage,
    OffsetSyncsSettings,
    SourceSettings,
)
from twinlog.config.values import precedence as precedence
from twinlog.config.values.precedence import ClusterSide, Connector, Settings
from twinlog.config.values.providers import Resolver
from twinlog.config.values.reader import ConfigFindings, SettingsReader
from twinlog.errors import ConfigError
from twinlog.filters import PatternList
from twinlog.model import Flow, TopicPartition
from twinlog.properties import Property

# `twinlog.copy.until`: where a finite copy ends, as source offsets by topic and partition.


def until_json(until: Mapping[TopicPartition, int]) -> str:
    """The form in the file and in the tasks: `{"orders": {"0": 120}}`."""
    told: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(until.items()):
        told.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(told, separators=(",", ":"))


def parse_until(text: str) -> dict[TopicPartition, int] | None:
    """None for an empty text. Raises ValueError."""
    if not text:
        return None
    try:
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, partitions in json.loads(text).items()
            for number, offset in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error


# The sources of one flow's settings.


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSources:
    """Everything from which a flow's settings are read."""

    raw: Settings
    flow: Flow
    connector: Settings
    """The settings of the source connector; those of the other two differ only in `name` and
    `connector.class`."""
    worker: Settings
    read: SettingsReader
    read_worker: SettingsReader
    resolver: Resolver
    findings: ConfigFindings


def source_settings(sources: FlowSources, clients: FlowClients) -> SourceSettings:
    read, worker, findings = sources.read, sources.read_worker, sources.findings
    exactly_once = worker.text("exactly.once.source.support") == "enabled"
    isolation = clients.source_consumer.properties["isolation.level"]
    support = read.property("exactly.once.support")
    if read.text("exactly.once.support") == "required" and support is not None:
        if isolation != READ_COMMITTED:
            findings.problem(
                support.key,
                f"required, but {sources.flow.source}.consumer.isolation.level is not {READ_COMMITTED}",
                line=support.line,
            )
        if not exactly_once:
            findings.problem(
                support.key,
                f"required, but {sources.flow.target}.exactly.once.source.support is not enabled",
                line=support.line,
            )
    reset, duration_ms = _auto_offset_reset(sources)
    max_slots = read.optional_integer("twinlog.max.slots")
    tasks_max = read.optional_integer("tasks.max")
    return SourceSettings(
        connector_name=precedence.connector_name(sources.raw, sources.flow, Connector.SOURCE),
        exactly_once=exactly_once,
        read_committed=isolation == READ_COMMITTED,
        auto_offset_reset=reset,
        reset_duration_ms=duration_ms,
        start_group=(read.optional_text("twinlog.start.group") or "").strip(),
        start_time_ms=_start_time(sources),
        max_slots=tasks_max if max_slots is None else max_slots,
        offset_storage=OffsetStorage(
            topic=read.optional_text("offsets.storage.topic") or worker.text("offset.storage.topic"),
            partitions=worker.integer("offset.storage.partitions"),
            replication_factor=worker.integer("offset.storage.replication.factor"),
            topic_configs=_topic_configs(sources),
        ),
        offset_syncs=_offset_syncs(sources),
        sync_flush_seconds=worker.integer("offset.flush.interval.ms") / 1000,
        copy_until=_copy_until(read, findings),
        weights=_weights(sources),
        offsets=OffsetsSettings(**read.declared(OffsetsSettings)),
        **read.declared(SourceSettings),
    )


def _weights(sources: FlowSources) -> tuple[tuple[str, float], ...]:
    """`payments:10, logs.*:0.1`"""
    found: list[tuple[str, float]] = []
    for text in sources.read.elements("twinlog.weight"):
        pattern, _, number = text.rpartition(":")
        try:
            PatternList("twinlog.weight", (pattern,))
            weight = float(number)
            if not pattern or not 0 < weight < inf:
                raise ValueError
        except (ValueError, ConfigError):
            prop = sources.read.property("twinlog.weight") or Property(key="twinlog.weight", value="")
            sources.findings.problem(
                prop.key,
                f"{text!r} is not a pattern of topics, a colon and a weight larger than 0, like orders.*:5;"
                " to copy nothing of a topic, use topics.exclude or twinlog pause",
                line=prop.line,
            )
        else:
            found.append((pattern, weight))
    return tuple(found)


def _start_time(sources: FlowSources) -> int | None:
    prop = sources.read.property("twinlog.start.time")
    text = (sources.read.optional_text("twinlog.start.time") or "").strip()
    if prop is None or not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        sources.findings.wrong_value(prop, "a time such as 2026-01-31T12:00:00Z", secret=False)
        return None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _copy_until(read: SettingsReader, findings: ConfigFindings) -> str:
    text = (read.optional_text("twinlog.copy.until") or "").strip()
    try:
        parse_until(text)
    except ValueError as error:
        findings.problem(
            "twinlog.copy.until", f"is not JSON of source offsets by topic and partition: {error}"
        )
    return text


_NO_TOPIC_CONFIGS = frozenset(("topic", "partitions", "replication.factor", "cleanup.policy"))


def _topic_configs(sources: FlowSources) -> dict[str, str]:
    """`offset.storage.<topic config>`: Connect creates its topic with these (except for cleanup.policy)."""
    stored = precedence.strip_prefix(sources.worker, "offset.storage.")
    return {
        name: sources.resolver.resolve(prop).value.strip()
        for name, prop in sorted(stored.items())
        if name not in _NO_TOPIC_CONFIGS
    }


_BY_DURATION = re.compile(
    r"by_duration:p(?=.)(?:(?P<days>\d{1,8})d)?(?:t(?=.)(?:(?P<hours>\d{1,8})h)?(?:(?P<minutes>\d{1,8})m)?"
    r"(?:(?P<seconds>\d{1,8}(?:\.\d*)?)s)?)?",
    re.ASCII,
)
"""A duration as Java reads it, without signs: Kafka refuses negative ones."""


def _auto_offset_reset(sources: FlowSources) -> tuple[AutoOffsetReset, int]:
    """Also how many ms ago, with `by_duration:`."""
    prop = precedence.consumer_properties(sources.connector, ClusterSide.SOURCE)["auto.offset.reset"]
    prop = sources.resolver.resolve(prop)
    value = prop.value.strip().lower()
    if by_duration := _BY_DURATION.fullmatch(value):
        ago = timedelta(**{unit: float(number or 0) for unit, number in by_duration.groupdict().items()})
        return AutoOffsetReset.BY_DURATION, round(ago / timedelta(milliseconds=1))
    names = [each for each in AutoOffsetReset if each is not AutoOffsetReset.BY_DURATION]
    if value not in names:
        sources.findings.wrong_value(prop, f"one of {', '.join(names)}, by_duration:PT1H", secret=False)
        return AutoOffsetReset.EARLIEST, 0
    return AutoOffsetReset(value), 0


def _offset_syncs(sources: FlowSources) -> OffsetSyncsSettings:
    """Like MM2, Twinlog refuses settings of offset syncs together with `emit.offset-syncs.enabled=false`."""
    read = sources.read
    switched_off = read.property("emit.offset-syncs.enabled")
    enabled = read.boolean("emit.offset-syncs.enabled")
    if not enabled and switched_off is not None:
        for key, prop in sources.connector.items():
            if key.startswith(("offset-syncs-", "offset-syncs.topic.")):
                sources.findings.problem(
                    prop.key,
                    f"offset syncs cannot be set up while {switched_off.key} is false: remove one of the two",
                    line=prop.line,
                )
    return OffsetSyncsSettings(enabled=enabled, **read.declared(OffsetSyncsSettings))
