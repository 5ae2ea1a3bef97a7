"""Applies rules that change while flows run: topics, groups, intervals, whether offsets are committed."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from twinlog.backoff import backoff_seconds
from twinlog.config import Configuration
from twinlog.errors import ConfigError, FatalKafkaError, TransientKafkaError, WireFormatError
from twinlog.service.feeds.rules import AppliedRules, RulesWatch
from twinlog.service.feeds.rules_in_force import heeding_file, rules_remedy
from twinlog.service.feeds.stored_rules import stored_rules
from twinlog.service.runtime import finish_or_cancel, wait_or_stop
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.groups.syncer import GroupSyncer

_log = structlog.stdlib.get_logger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class RulesFollower:
    """One flow."""

    configuration: Configuration
    rules: RulesWatch
    checkpointer: Checkpointer
    syncer: GroupSyncer
    is_owner: Callable[[], bool | None] = lambda: True
    """Whether this process owns the flow; None = not known. The file of another process may not be this one,
    so only the owner puts stored rules aside because its file has changed."""
    _applied: AppliedRules = field(init=False)
    _unread: str = ""
    """Why the stored rules could not be read."""

    def __post_init__(self) -> None:
        self._applied = AppliedRules(
            self.rules,
            self.configuration,
            self.checkpointer.entry.flow,
            lambda config: self.follow(checkpoint_flow(config)),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow every change until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            flow = self.checkpointer.entry.flow
            tasks.create_task(self._applied.run(stop), name=f"changed rules of {flow}")
            tasks.create_task(self._read_stored(stop), name=f"stored rules of {flow}")

    @property
    def problem(self) -> str:
        """Why other rules than the stored ones may apply; "" when the stored ones apply."""
        if not self.rules.knows(self.checkpointer.entry.flow):
            why = f": {self._unread}" if self._unread else ""
            return f"the changed rules have not been read yet{why}"
        problem = self._applied.problem
        if not problem:
            return ""
        return (
            f"the changed rules do not apply yet: {problem}. This is tried again; correct the file, or reset"
            f" the rules (`twinlog rules reset '{self.checkpointer.entry.flow}'`)"
        )

    @property
    def changed_keys(self) -> Collection[str]:
        """The keys of the known rules, which differ from the file."""
        return self.rules.values(self.checkpointer.entry.flow).keys()

    async def learn(self) -> None:
        """Apply the rules that configsync has stored, because configsync may be down now; rules from
        configsync itself take precedence.

        Raises KafkaError while the target does not answer. If the stored rules cannot be read or used, the
        rules before apply, and `problem` says so until `run` has succeeded.
        """
        flow = self.checkpointer.entry.flow
        try:
            stored = await stored_rules(self.checkpointer.target, flow.source)
            if self.is_owner():
                stored = heeding_file(self.configuration, flow, stored)
            self.rules.seed(flow, stored.values)
            await self._applied.apply()
        except TransientKafkaError as error:
            self._unread = str(error)
            raise
        except (FatalKafkaError, WireFormatError) as error:
            said, self._unread = self._unread, f"{error}. {rules_remedy(error, flow)}"
            if said != self._unread:
                _log.warning("stored_rules_unusable", flow=str(flow), reason=error.reason, message=str(error))
        except ConfigError:
            return  # `run` tries again

    async def _read_stored(self, stop: asyncio.Event) -> None:
        """Read the stored rules now and then until configsync has sent them, also if another process owns
        the flow: a failback of the reverse flow follows them."""
        flow, failures = self.checkpointer.entry.flow, 0
        while not stop.is_set() and not self.rules.is_sent(flow):
            with suppress(TransientKafkaError):  # `problem` has it
                await finish_or_cancel(self.learn(), stop=stop)
            wait_seconds = backoff_seconds(failures, first=FIRST_RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS)
            failures += 1
            await wait_or_stop(stop, LONGEST_RETRY_SECONDS if self.rules.knows(flow) else wait_seconds)

    def follow(self, entry: CheckpointFlow) -> None:
        """Apply the rules that may change while the flow runs."""
        self.checkpointer.follow(entry)
        self.syncer.follow(
            enabled=entry.settings.sync_group_offsets_enabled,
            interval_seconds=entry.settings.sync_group_offsets_interval_seconds,
        )
