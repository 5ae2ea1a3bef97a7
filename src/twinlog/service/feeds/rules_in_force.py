"""A flow with the rules in force: its file, with the changes that configsync stored on the target."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.config import Configuration, FlowConfig
from twinlog.config.values.live import LIVE_KEYS, live_overrides, stopped_by
from twinlog.errors import ConfigError, KafkaError, StateError, TransientKafkaError, WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Flow
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.registry import stored_rules
from twinlog.service.feeds.rules_record import NO_RULES, RulesRecord, heeding, rules_told


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowInForce:
    """A flow as it runs, or would run: its file, with the rules that were changed while it ran."""

    config: FlowConfig
    record: RulesRecord = NO_RULES
    told: tuple[str, ...] = ()
    """Each rule that is not the file's, as a sentence."""


async def flow_in_force(
    configuration: Configuration, flow: Flow, target: KafkaCluster, *, starting: bool = False
) -> FlowInForce:
    """Read the rules of a flow that are in force, for a command that asks no service.

    `starting`: those that would be in force if the services started with this file, which puts rules aside.
    Raises KafkaError while the target does not answer, StateError with a remedy if the stored rules cannot be
    read or do not fit this file, ConfigError for an unknown flow.
    """
    try:
        record = await stored_rules(target, flow)
        if starting:
            record = heeding_file(configuration, flow, record)
        config = await asyncio.to_thread(flow_in_effect, configuration, flow, record.values)
    except TransientKafkaError:
        raise
    except (KafkaError, WireFormatError, ConfigError) as error:
        raise StateError(
            f"{flow}: the rules in force are not known: {error}. {rules_remedy(error, flow)}",
            reason=error.reason,
            metadata=error.metadata,
        ) from error
    base = configuration.base
    told = () if base is None else tuple(rules_told(flow, record, base.flow_values(flow, LIVE_KEYS)))
    return FlowInForce(config=config, record=record, told=told)


def heeding_file(configuration: Configuration, flow: Flow, record: RulesRecord) -> RulesRecord:
    """The rules as they are once the services have started with this file."""
    written = {} if configuration.base is None else configuration.base.written_values(flow, LIVE_KEYS)
    return heeding(record, written, now_ms=record.updated_at_ms)


def flow_in_effect(configuration: Configuration, flow: Flow, values: Mapping[str, str]) -> FlowConfig:
    """A flow's configuration with changed rules on top of the file.

    Blocks as `load` does. Raises ConfigError when the rules do not fit this process's file, which may differ
    from configsync's.
    """
    if not values:
        return configuration.flow(flow)
    if configuration.base is None:
        raise ConfigError("this configuration was put together by hand: it has no file to change")
    changed = configuration.base.with_overrides(live_overrides(flow, values))
    return stopped_by(values, changed.flow(flow))


def rules_remedy(error: KafkaError | WireFormatError | ConfigError, flow: Flow) -> str:
    """What helps where the stored rules of a flow cannot be read or used."""
    topic = configsync_topic(flow.source)
    match error:
        case KafkaError():
            return f"Allow this client to READ {topic} on {flow.target}"
        case WireFormatError():
            return f"Run the newer release, or delete {topic} on {flow.target}: then the file applies"
        case _:
            return f"Correct the file, or reset the rules (`twinlog rules reset '{flow}'`)"
