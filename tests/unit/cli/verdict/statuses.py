"""A status in which everything moves, and what happens to it."""

from collections.abc import Sequence

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.rows import FlowRow, ServiceRow, Status

SERVICES = ("source", "checkpoint", "heartbeat", "configsync")
REFUSED = "read the cluster id: no broker can be reached ([Errno 111] Connect call failed ('127.0.0.1', 1))"


def healthy() -> Status:
    status = Status(
        services=[
            ServiceRow(name=name, endpoint="h:1", health="SERVING", config="/etc/my mirror.properties")
            for name in SERVICES
        ]
    )
    row = status.flow(types_pb2.Flow(source="A", target="B"))
    row.partitions, row.records, row.lag_records = {"RUNNING": 3, "PAUSED": 0}, 7, 5_000
    row.partitions_of_unknown_lag, row.path = 0, "ALIVE"
    for name in SERVICES:
        for alias in ("A", "B"):
            status.add_clusters(name, [types_pb2.ClusterStatus(alias=alias, reachable=True)])
    return status


def flow(status: Status) -> FlowRow:
    return status.flows["A->B"]


def away(
    status: Status,
    services: Sequence[str] = SERVICES,
    reason: str = "KAFKA_UNAVAILABLE",
    message: str = REFUSED,
) -> None:
    told = types_pb2.ClusterStatus(alias="B", reachable=False, reason=reason, message=message)
    told.since.FromJsonString("2026-11-28T13:08:56Z")
    for name in services:
        status.add_clusters(name, [told])
