"""Changed rules of running flows, as they apply in the services that configsync tells them."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import structlog

from twinlog.backoff import backoff_seconds
from twinlog.config import Configuration, FlowConfig
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.rules_in_force import flow_in_effect, heeding_file
from twinlog.service.waiting import wait_for_any

_log = structlog.stdlib.get_logger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

_NOTHING: Mapping[str, str] = MappingProxyType({})


class AppliedRules:
    """The rules of one flow as they apply in this service: those of the file until `apply` has put others.

    Rules that cannot be used with this process's file are logged, and tried again after a while, because it
    may be a secret that could not be read. Until then the ones before apply.
    """

    def __init__(
        self,
        decisions: Decisions,
        configuration: Configuration,
        flow: Flow,
        put: Callable[[FlowConfig], None],
        *,
        is_owner: Callable[[], bool | None] = lambda: True,
    ) -> None:
        """`put` applies a configuration of the flow; it may raise ConfigError for rules that cannot be
        used. `is_owner`: whether this process owns the flow; None = not known."""
        self._decisions = decisions
        self._configuration = configuration
        self._flow = flow
        self._put = put
        self._is_owner = is_owner
        self._changed = decisions.subscribe()
        self._applied: Mapping[str, str] = _NOTHING
        self._refused: Mapping[str, str] | None = None
        self._problem = ""

    @property
    def values(self) -> Mapping[str, str]:
        """Configuration keys of the flow that differ from its file, as written.

        configsync puts rules aside whose keys have changed in its file. While it is away, the owner of the
        flow does that here; the file of another process may be an older one.
        """
        record = self._decisions.rules(self._flow)
        if record.values and not self._decisions.is_told(self._flow) and self._is_owner():
            record = heeding_file(self._configuration, self._flow, record)
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
                config = await asyncio.to_thread(flow_in_effect, self._configuration, self._flow, values)
                if values == self.values != self._applied:
                    self._put(config)
                    self._applied, self._refused, self._problem = values, None, ""
                    _log.info("rules_changed", flow=str(self._flow), keys=sorted(values))
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
