"""Changed rules of running flows, as they apply in the services that configsync tells them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

import structlog

from twinlog.backoff import backoff_seconds
from twinlog.config import Configuration, FlowConfig
from twinlog.config.values.live import LIVE_KEYS, live_overrides, stopped_by
from twinlog.errors import ConfigError, KafkaError, StateError, TransientKafkaError, WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Flow
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.registry import Decisions, stored_rules
from twinlog.service.feeds.rules_record import NO_RULES, RulesRecord, heeding, rules_told
from twinlog.service.waiting import wait_for_any

# A flow with the rules in force: its file, with the changes that configsync stored on the target.


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
            return f"Correct the file, or reset the rules (`twinlog rules diff '{flow}'` says how)"


_log = structlog.stdlib.get_logger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0


@dataclass(slots=True, eq=False, repr=False)
class AppliedRules:
    """The rules of one flow as they apply in this service: those of the file until `apply` has put others.

    Rules that cannot be used with this process's file are logged, and tried again after a while, because it
    may be a secret that could not be read. Until then the ones before apply.
    """

    decisions: Decisions
    configuration: Configuration
    flow: Flow
    put: Callable[[FlowConfig], None]
    """Applies a configuration of the flow; may raise ConfigError for rules that cannot be used."""
    _: KW_ONLY
    is_owner: Callable[[], bool | None] = lambda: True
    """Whether this process owns the flow; None = not known."""
    _applied: Mapping[str, str] = field(default_factory=dict)
    _refused: Mapping[str, str] | None = None
    _problem: str = ""
    _changed: asyncio.Event = field(init=False)

    def __post_init__(self) -> None:
        self._changed = self.decisions.subscribe()

    @property
    def values(self) -> Mapping[str, str]:
        """Configuration keys of the flow that differ from its file, as written.

        configsync puts rules aside whose keys have changed in its file. While it is away, the owner of the
        flow does that here; the file of another process may be an older one.
        """
        record = self.decisions.rules(self.flow)
        if record.values and not self.decisions.is_told(self.flow) and self.is_owner():
            record = heeding_file(self.configuration, self.flow, record)
        return record.values

    @property
    def problem(self) -> str:
        """Why the known rules do not apply; "" when they do."""
        values = self.values
        if values == self._applied:
            return ""
        return self._problem if values == self._refused else "they have just been changed"

    async def apply(self) -> None:
        """Apply the rules that are known now, if they do not yet. Raises ConfigError."""
        while (values := self.values) != self._applied:
            try:
                config = await asyncio.to_thread(flow_in_effect, self.configuration, self.flow, values)
                if values == self.values != self._applied:
                    self.put(config)
                    self._applied, self._refused, self._problem = values, None, ""
                    _log.info("rules_changed", flow=str(self.flow), keys=sorted(values))
            except ConfigError as error:
                if str(error) != self._problem:
                    _log.warning(
                        "changed_rules_unusable",
                        flow=str(self.flow),
                        reason=error.reason,
                        message=str(error),
                    )
                self._refused, self._problem = values, str(error)
                raise

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: apply the rules whenever they change, until `stop`."""
        failures = 0
        while not stop.is_set():
            wait_seconds = backoff_seconds(
                failures - 1, first=FIRST_RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS
            )
            await wait_for_any(stop, self._changed, seconds=wait_seconds if failures else None)
            if self._changed.is_set():
                failures = 0
            self._changed.clear()
            try:
                await self.apply()
            except ConfigError:
                failures += 1
            else:
                failures = 0
