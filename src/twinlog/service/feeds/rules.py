"""Changed rules of running flows, as configsync's peers know them; kept while configsync is away."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import grpc
import structlog

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.backoff import backoff_seconds
from twinlog.clock import Clock
from twinlog.config import Configuration, FlowConfig
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.feeds.client import Lost, Received, Restarted, WatchEvent
from twinlog.service.feeds.followed import FollowedWatch
from twinlog.service.feeds.rules_in_force import flow_in_effect
from twinlog.service.interceptors import PEER_METADATA
from twinlog.service.runtime import Backoff, wait_for_any

_log = structlog.stdlib.get_logger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

_NOTHING: Mapping[str, str] = MappingProxyType({})


class RulesWatch(FollowedWatch[pb2.WatchRulesResponse]):
    """Follows WatchRules for all flows.

    A flow without known rules follows its file. Known rules stay until configsync sends others.
    """

    task_name = "watch-rules"

    def __init__(self, channel: grpc.aio.Channel, *, clock: Clock, backoff: Backoff) -> None:
        super().__init__(clock=clock, backoff=backoff)
        self._stub = ConfigSyncServiceStub(channel)
        self._values: dict[Flow, Mapping[str, str]] = {}
        self._seeded: set[Flow] = set()
        """Flows whose rules were read by this process, and not sent by configsync."""

    def values(self, flow: Flow) -> Mapping[str, str]:
        """Configuration keys of a flow that differ from its file, as written."""
        return self._values.get(flow, _NOTHING)

    def knows(self, flow: Flow) -> bool:
        """Whether configsync has sent the flow's rules, or its stored ones were read."""
        return flow in self._values

    def is_sent(self, flow: Flow) -> bool:
        """Whether configsync has sent the flow's rules."""
        return flow in self._values and flow not in self._seeded

    def seed(self, flow: Flow, values: Mapping[str, str]) -> Mapping[str, str]:
        """Use stored values as configsync's last state unless it has sent something; return the values in
        force. Stored values that were read later replace earlier ones."""
        if not self.is_sent(flow):
            before = self._values.get(flow)
            self._seeded.add(flow)
            self._values[flow] = dict(values)
            if before != self._values[flow]:
                self._tell()
        return self._values[flow]

    def _open(self, token: bytes) -> grpc.aio.UnaryStreamCall[pb2.WatchRulesRequest, pb2.WatchRulesResponse]:
        return self._stub.WatchRules(pb2.WatchRulesRequest(resume_token=token), metadata=PEER_METADATA)

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
                left_out = self._left_out(error)
                if left_out is not None:
                    _log.warning(
                        "rules_watch_lost", reason=error.reason, message=str(error), left_out=left_out
                    )
            case Restarted():
                pass

    def _put(self, rules: pb2.ChangedRules) -> None:
        flow, values = _flow(rules.flow), dict(rules.values)
        before = self.values(flow)
        # Also what changes nothing is known from now on, so that older stored rules do not replace it.
        self._values[flow] = values
        self._seeded.discard(flow)
        if values == before:
            return
        _log.info("rules_changed", flow=str(flow), version=rules.version, keys=sorted(values))
        self._tell()


class AppliedRules:
    """The rules of one flow as they apply in this service: those of the file until `apply` has put others.

    Rules that cannot be used with this process's file are logged, and tried again after a while, because it
    may be a secret that could not be read. Until then the ones before apply.
    """

    def __init__(
        self,
        rules: RulesWatch,
        configuration: Configuration,
        flow: Flow,
        put: Callable[[FlowConfig], None],
    ) -> None:
        """`put` applies a configuration of the flow; it may raise ConfigError for rules that cannot be
        used."""
        self._rules = rules
        self._configuration = configuration
        self._flow = flow
        self._put = put
        self._changed = rules.subscribe()
        self._applied: Mapping[str, str] = _NOTHING
        self._refused: Mapping[str, str] | None = None
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why the known rules do not apply; "" when they do."""
        values = self._rules.values(self._flow)
        if values == self._applied:
            return ""
        return self._problem if values == self._refused else "they have just been changed"

    async def apply(self) -> None:
        """Apply the rules that are known now, if they do not yet. Raises ConfigError."""
        while (values := self._rules.values(self._flow)) != self._applied:
            try:
                config = await asyncio.to_thread(flow_in_effect, self._configuration, self._flow, values)
                if values == self._rules.values(self._flow) != self._applied:
                    self._put(config)
                    self._applied, self._refused, self._problem = values, None, ""
            except ConfigError as error:
                if str(error) != self._problem:
                    _log.warning(
                        "changed_rules_unusable",
                        flow=str(self._flow),
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


def _flow(message: types_pb2.Flow) -> Flow:
    return Flow(message.source, message.target)
