"""Which topics the rules select while configsync is down: those of the file, with the changes that configsync
has stored on the target."""

import asyncio
from dataclasses import dataclass, field

import structlog

from twinlog.config import Configuration
from twinlog.errors import ConfigError, StateError
from twinlog.kafka.ports import KafkaCluster
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.feeds.rules_in_force import flow_in_force
from twinlog_source.config import SourceFlow

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class StoredSelection:
    """One flow. Stored rules that can be used are read once, because nobody changes them while configsync is
    down."""

    configuration: Configuration
    flow: SourceFlow
    target: KafkaCluster
    retry_seconds: float = 30.0
    """How long the file applies before rules that cannot be read or used are tried again."""
    _selector: TopicSelector | None = field(default=None)
    _due_at: float = float("-inf")
    _problem: str = ""

    async def selector(self) -> TopicSelector:
        """Return the selection. Raises KafkaError while the target does not answer.

        Rules that this process's file puts aside do not count. If the stored rules cannot be read or used,
        this is logged, and the file applies for the moment: it may be a secret that cannot be read now.
        """
        now = asyncio.get_running_loop().time()
        if self._selector is None and now < self._due_at:
            return self.flow.selector
        if self._selector is None:
            flow = self.flow.flow
            try:
                found = await flow_in_force(self.configuration, flow, self.target, starting=True)
                self._selector = topic_selector(found.config)
            except (StateError, ConfigError) as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    _log.warning(
                        "stored_rules_unusable", flow=str(flow), reason=error.reason, message=self._problem
                    )
                self._due_at = now + self.retry_seconds
                return self.flow.selector
        return self._selector
