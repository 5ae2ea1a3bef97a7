"""Applies rules that change while flows run: topics, groups, intervals, whether offsets are committed."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from twinlog.config import Configuration
from twinlog.errors import ConfigError, FatalKafkaError, WireFormatError
from twinlog.model import Flow
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.rules import AppliedRules, rules_remedy
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow
from twinlog_checkpoint.flow.syncer import GroupSyncer
from twinlog_checkpoint.groups.checkpointer import Checkpointer


@dataclass(slots=True, kw_only=True)
class RulesFollower:
    """One flow."""

    configuration: Configuration
    decisions: Decisions
    checkpointer: Checkpointer
    syncer: GroupSyncer
    is_owner: Callable[[], bool | None] = lambda: True
    """Whether this process owns the flow; None = not known. The file of another process may not be this one,
    so only the owner puts stored rules aside because its file has changed."""
    _applied: AppliedRules = field(init=False)

    def __post_init__(self) -> None:
        self._applied = AppliedRules(
            self.decisions,
            self.configuration,
            self.checkpointer.entry.flow,
            lambda config: self.follow(checkpoint_flow(config)),
            is_owner=lambda: self.is_owner(),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow every change until `stop`."""
        await self._applied.run(stop)

    @property
    def problem(self) -> str:
        """Why other rules than the stored ones may apply; "" when the stored ones apply."""
        flow = self.checkpointer.entry.flow
        if not self.decisions.knows(flow):
            return f"the changed rules have not been read yet{self._unread(flow)}"
        problem = self._applied.problem
        if not problem:
            return ""
        return (
            f"the changed rules do not apply yet: {problem}. This is tried again; correct the file, or reset"
            f" the rules (`twinlog rules diff '{self.checkpointer.entry.flow}'` says how)"
        )

    @property
    def changed_keys(self) -> Collection[str]:
        """The keys of the known rules, which differ from the file."""
        return self._applied.values.keys()

    async def learn(self) -> None:
        """Apply the rules that configsync tells, or has stored.

        Raises KafkaError while the target does not answer. If the stored rules cannot be read or used, the
        rules before apply, and `problem` says so until `run` has succeeded.
        """
        try:
            await self.decisions.know(self.checkpointer.entry.flow)
            await self._applied.apply()
        except (FatalKafkaError, WireFormatError):
            return  # `problem` has it.
        except ConfigError:
            return  # `run` tries again

    def _unread(self, flow: Flow) -> str:
        error = self.decisions.problem(flow)
        if isinstance(error, FatalKafkaError | WireFormatError):
            return f": {error}. {rules_remedy(error, flow)}"
        return "" if error is None else f": {error}"

    def follow(self, entry: CheckpointFlow) -> None:
        """Apply the rules that may change while the flow runs."""
        self.checkpointer.follow(entry)
        self.syncer.look_again()
