"""One partition with a preserved copy, as its writer sees it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.batches import OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.fill_limits import HoleCost


@dataclass(slots=True, kw_only=True, eq=False)
class PreservedPartition:
    """One partition of the target in its writer."""

    target: TopicPartition
    appends: AppendLog[OutgoingBatch]
    connection: DataConnection | None = None
    """The connection to its leader, by which its end was read or a batch was last sent. Only on one
    connection does the leader get the batches in flight in order."""
    retry_at: float = 0.0
    """Nothing is done before this time, in monotonic seconds."""
    failures: int = 0
    """The number of failures in a row."""
    problem: KafkaError | None = None
    """Why nothing is written; None while there is no problem."""
    problem_since: float = 0.0
    """Since when, in monotonic seconds."""
    lost_at: float = -math.inf
    """Monotonic seconds: when an answer was lost last. Until its request has timed out, the batch may still
    come."""
    filling_since: float = 0.0
    hole_cost: HoleCost = field(default_factory=HoleCost)
    topic_id: str = ""
    """The id of the target topic that the driver knows; "" = brokers without topic ids."""
    common_until: int = 0
    """Below this offset, records of other producers are copies of the source's."""


Changed = Callable[[PreservedPartition], None]
"""Called when the position, the problem or `wanted` has changed."""
Failed = Callable[[PreservedPartition, KafkaError], float | None]
"""Called after a failed write, fill or read of the end; returns for how many seconds to leave the partition
alone, None = briefly."""
