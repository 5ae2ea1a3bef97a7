"""Which brokers of a cluster do not answer while others do.

The metadata names no broker that has died, but partitions name it for as long as they have replicas on it:
one that was removed for good is not missed. One whose packets vanish only on the way to this client is in the
metadata, and has to be asked.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from twinlog.errors import KafkaError
from twinlog.kafka.admin.topics import TopicAdminMixin
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.kafka.ports import Outage
from twinlog.kafka.protocol.metadata import METADATA, metadata_request

_DOING: Final = "ask each broker"
_AT_ONCE: Final = 16


class BrokerAdminMixin(TopicAdminMixin):
    """Implements `TopicAdmin`, `outage` included."""

    async def outage(self, whole: Collection[int] = ()) -> tuple[frozenset[int], Outage]:
        told = await self._topics((), _DOING)
        named = frozenset(told.brokers)
        silent = await self._silent(await self._silent(named))
        if silent >= named:
            raise from_reason(UNAVAILABLE, _DOING, alias=self._wire.alias, detail="no broker answers")
        if not silent and named == frozenset(whole):
            return named, Outage()
        told = await self._topics(None, _DOING)
        missing = told.replicas.offline.difference(told.brokers)
        if not silent and not missing:
            return named, Outage()
        return named, Outage(
            brokers=silent | missing,
            without_leader=told.replicas.without_leader,
            under_replicated=told.replicas.under_replicated,
        )

    async def _silent(self, node_ids: frozenset[int]) -> frozenset[int]:
        """Those that do not answer within half of a call's time."""
        if not node_ids:
            return node_ids
        await self._wire.make_known(node_ids, _DOING)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def is_silent(node_id: int) -> bool:
            async with turns:
                if self._wire.throttled_seconds(node_id, METADATA):
                    return False
                try:
                    async with deadline(self._wire.timeout_seconds / 2, _DOING, alias=self._wire.alias):
                        await self._wire.send(node_id, metadata_request(()), _DOING)
                except KafkaError:
                    return True  # Also while a new connection is refused: this is told of all brokers then.
                return False

        async with asyncio.TaskGroup() as group:
            asked = {
                node_id: group.create_task(is_silent(node_id), name=f"ask broker {node_id}")
                for node_id in node_ids
            }
        return frozenset(node_id for node_id, task in asked.items() if task.result())
