"""Rules that were changed while the flows run, as configsync's peers know them: kept while configsync is
away.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import grpc
import structlog

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.clock import Clock
from twinlog.config import Configuration, FlowConfig
from twinlog.config.live import live_overrides
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.feeds.client import Lost, Received, Restarted, WatchEvent, watch
from twinlog.service.interceptors import PEER_METADATA
from twinlog.service.runtime import Backoff, wait_for_any
from twinlog.telemetry.repeats import RepeatLimiter

_log = structlog.stdlib.get_logger(__name__)

_NOTHING: Mapping[str, str] = MappingProxyType({})


class RulesWatch:
    """Follows WatchRules for all flows. Run `run` as a loop; read the rest at any time from the same event
    loop.

    A flow of which nothing is known follows its file. What is known of a flow stays until configsync says
    something else of it.
    """

    def __init__(self, channel: grpc.aio.Channel, *, clock: Clock, backoff: Backoff) -> None:
        self._stub = ConfigSyncServiceStub(channel)
        self._clock = clock
        self._backoff = backoff
        self._limiter = RepeatLimiter(interval_seconds=60.0)
        self._values: dict[Flow, Mapping[str, str]] = {}
        self._subscribers: list[asyncio.Event] = []

    def values(self, flow: Flow) -> Mapping[str, str]:
        """Configuration keys of a flow that differ from its file, as written."""
        return self._values.get(flow, _NOTHING)

    def seed(self, flow: Flow, values: Mapping[str, str]) -> Mapping[str, str]:
        """Take values that were stored as what configsync said last, unless it has spoken; return those in
        force.
        """
        if flow not in self._values:
            self._values[flow] = dict(values)
            for subscriber in self._subscribers:
                subscriber.set()
        return self._values[flow]

    def subscribe(self) -> asyncio.Event:
        """An event of the caller's own, set at every change (and at once); the caller clears it before it
        looks.
        """
        event = asyncio.Event()
        event.set()
        self._subscribers.append(event)
        return event

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow the watch until `stop`, through every absence of configsync."""
        async with asyncio.TaskGroup() as group:
            follower = group.create_task(self._follow(stop), name="watch-rules")
            await stop.wait()
            follower.cancel()

    async def _follow(self, stop: asyncio.Event) -> None:
        def open_stream(
            token: bytes,
        ) -> grpc.aio.UnaryStreamCall[pb2.WatchRulesRequest, pb2.WatchRulesResponse]:
            return self._stub.WatchRules(pb2.WatchRulesRequest(resume_token=token), metadata=PEER_METADATA)

        async for event in watch(open_stream, peer="configsync", stop=stop, backoff=self._backoff):
            self.handle(event)

    def handle(self, event: WatchEvent[pb2.WatchRulesResponse]) -> None:
        """Apply one event of the watch."""
        match event:
            case Received(response):
                match response.WhichOneof("event"):
                    case "snapshot_item":
                        self._put(response.snapshot_item)
                    case "changed":
                        self._put(response.changed)
            case Lost(error):
                left_out = self._limiter.admit(error.reason, now=self._clock.monotonic())
                if left_out is not None:
                    _log.warning(
                        "rules_watch_lost", reason=error.reason, message=str(error), left_out=left_out
                    )
            case Restarted():
                pass

    def _put(self, rules: pb2.ChangedRules) -> None:
        flow, values = _flow(rules.flow), dict(rules.values)
        if values == self._values.get(flow, _NOTHING):
            return
        self._values[flow] = values
        _log.info("rules_changed", flow=str(flow), version=rules.version, keys=sorted(values))
        for subscriber in self._subscribers:
            subscriber.set()


async def follow_rules(
    rules: RulesWatch,
    configuration: Configuration,
    flow: Flow,
    put: Callable[[FlowConfig], None],
    stop: asyncio.Event,
) -> None:
    """Loop: `put` the flow's configuration whenever its rules change, until `stop`.

    Rules that do not fit this process's file are said and not followed; `put` may raise ConfigError for such.
    """
    changed = rules.subscribe()
    followed = _NOTHING
    while not stop.is_set():
        await wait_for_any(stop, changed)
        changed.clear()
        values = rules.values(flow)
        if values == followed:
            continue
        try:
            put(await asyncio.to_thread(flow_in_effect, configuration, flow, values))
        except ConfigError as error:
            _log.warning("changed_rules_unusable", flow=str(flow), reason=error.reason, message=str(error))
        followed = values


def flow_in_effect(configuration: Configuration, flow: Flow, values: Mapping[str, str]) -> FlowConfig:
    """A flow's configuration with changed rules on top of the file.

    Blocks as `load` does. Raises ConfigError when they do not fit this process's file: it may be another
    one than configsync's.
    """
    if not values:
        return configuration.flow(flow)
    if configuration.base is None:
        raise ConfigError("this configuration was put together by hand: it has no file to change")
    changed = configuration.base.with_overrides(live_overrides(flow, values))
    return changed.flow(flow)


def _flow(message: types_pb2.Flow) -> Flow:
    return Flow(message.source, message.target)
