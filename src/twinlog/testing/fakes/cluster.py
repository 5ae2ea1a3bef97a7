"""A Kafka cluster in memory behind the ports of `twinlog.kafka.ports`, for tests without brokers.

It passes the same contract suite as the real one. Beyond the ports it has what tests need: transactions
(`append_transaction`), holes (`punch_holes`), truncation, group states (`set_group`), a leader that is out
(`silence`), an outage (`take_away`,
`bring_back`) and `intercept`, which runs a test's function before or after any operation:

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no", reason="TOPIC_UNAUTHORIZED", code=29)

    undo = cluster.intercept("append", refuse)

It knows no principals: ACLs are kept and never enforced. Closing it keeps its state, so it can be opened by
several owners, one after the other or together.
"""

from collections.abc import Callable

from twinlog.kafka.ports import Introduce, KafkaCluster, ManagedReader, ManagedWriter
from twinlog.testing.fakes.cluster_elections import FakeElections
from twinlog.testing.fakes.cluster_groups import FakeAclAdmin, FakeGroupAdmin
from twinlog.testing.fakes.cluster_hooks import Call, Hook
from twinlog.testing.fakes.cluster_io import FakeReader, FakeWriter
from twinlog.testing.fakes.cluster_logs import FakeLogAdmin
from twinlog.testing.fakes.cluster_quotas import FakeQuotaAdmin
from twinlog.testing.fakes.cluster_state import Transaction
from twinlog.testing.fakes.cluster_topics import FakeConfigAdmin, FakeTopicAdmin

__all__ = ["Call", "FakeCluster", "Hook", "Transaction"]


class FakeCluster(
    FakeTopicAdmin,
    FakeConfigAdmin,
    FakeAclAdmin,
    FakeQuotaAdmin,
    FakeGroupAdmin,
    FakeLogAdmin,
    FakeElections,
):
    """`KafkaCluster` in memory. For one event loop."""

    async def __aenter__(self) -> KafkaCluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Keeps everything."""

    def __repr__(self) -> str:
        return f"<FakeCluster {self.alias}>"

    def reader(self, *, read_committed: bool = True) -> ManagedReader:
        return FakeReader(self, read_committed=read_committed)

    def writer(self, *, introduce: Introduce | None = None) -> ManagedWriter:
        return FakeWriter(self, introduce)

    def intercept(self, operation: str, hook: Hook, *, after: bool = False) -> Callable[[], None]:
        """Call `hook` before (or after) every call of a port's method, e.g. "append" or "create_topics".

        Returns what takes the hook away again.
        """
        return self.hooks.add(operation, hook, after=after)

    def take_away(self) -> None:
        """Every operation now raises TransientKafkaError (KAFKA_UNAVAILABLE), until `bring_back`;
        `describe_topics` has it for each topic."""
        self.hooks.available = False
        self.changed()

    def bring_back(self) -> None:
        self.hooks.available = True
