"""`twinlog groups --watch`: follows WatchCheckpoints through restarts of the service."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.cli.checkpoint.groups_view import FLOW, GROUP
from twinlog.cli.common.call import watched
from twinlog.cli.common.fields import as_json
from twinlog.cli.common.names import flow_name
from twinlog.errors import ConfigError, NotFoundError, TwinlogError
from twinlog.service.feeds.client import Lost, Received, Restarted, WatchEvent

Key = tuple[str, str, str, int]
"""Flow, group, source topic and partition; the last three empty for the flow itself."""


@dataclass(slots=True)
class WatchedGroups:
    """The rows that the stream has sent so far. A complete snapshot replaces everything."""

    groups: dict[Key, pb2.GroupPartition] = field(default_factory=dict)
    flows: dict[Key, pb2.FlowProgress] = field(default_factory=dict)
    complete: bool = False
    """A snapshot was received completely."""
    lost: TwinlogError | None = None
    """Why the stream is down; None while it is up."""
    _snapshot: list[pb2.WatchedItem] = field(default_factory=list)

    def see(self, event: WatchEvent[pb2.WatchCheckpointsResponse]) -> None:
        match event:
            case Restarted():
                self._snapshot = []
            case Lost(error=error):
                self.lost = error
            case Received(response=response):
                self.lost = None
                self._take(response)

    def _take(self, response: pb2.WatchCheckpointsResponse) -> None:
        match response.WhichOneof("event"):
            case "snapshot_item":
                self._snapshot.append(response.snapshot_item)
            case "snapshot_end":
                self.groups, self.flows = {}, {}
                for item in self._snapshot:
                    self._put(item)
                self.complete, self._snapshot = True, []
            case "changed":
                self._put(response.changed)
            case "removed":
                self.groups.pop(key_of(response.removed), None)
                self.flows.pop(key_of(response.removed), None)

    def _put(self, item: pb2.WatchedItem) -> None:
        if item.WhichOneof("item") == "group":
            self.groups[key_of(item)] = item.group
        else:
            self.flows[key_of(item)] = item.flow

    def rows(self) -> list[pb2.GroupPartition]:
        """Sorted by flow, group, topic and partition."""
        return [self.groups[key] for key in sorted(self.groups)]

    def flow_rows(self) -> list[pb2.FlowProgress]:
        return [self.flows[key] for key in sorted(self.flows)]


def key_of(item: pb2.WatchedItem) -> Key:
    if item.WhichOneof("item") == "group":
        row = item.group
        return flow_name(row.flow), row.group, row.source.topic, row.source.partition
    return flow_name(item.flow.flow), "", "", -1


def event_as_json(event: WatchEvent[pb2.WatchCheckpointsResponse]) -> dict[str, Any] | None:
    """One line of JSON; None for an event without news."""
    match event:
        case Restarted():
            return {"event": "SNAPSHOT"}
        case Lost(error=error):
            return {"event": "LOST", "reason": error.reason, "message": str(error)}
        case Received(response=response):
            match response.WhichOneof("event"):
                case "snapshot_item":
                    return {"event": "CHANGED", **_item_as_json(response.snapshot_item)}
                case "snapshot_end":
                    return {"event": "SNAPSHOT_END"}
                case "changed":
                    return {"event": "CHANGED", **_item_as_json(response.changed)}
                case "removed":
                    return {"event": "REMOVED", **_item_as_json(response.removed)}
    return None


def _item_as_json(item: pb2.WatchedItem) -> dict[str, Any]:
    if item.WhichOneof("item") == "group":
        return {"kind": "group", **as_json(GROUP, item.group)}
    return {"kind": "flow", **as_json(FLOW, item.flow)}


async def follow(
    stub: CheckpointServiceStub,
    request: pb2.WatchCheckpointsRequest,
    on_event: Callable[[WatchEvent[pb2.WatchCheckpointsResponse]], None],
) -> None:
    """Pass every event to `on_event`, until cancelled; reconnects when the service was away.

    Raises the error of a wrong request, and that of a service that was down at the start.
    """

    connected = False
    async with aclosing(watched(stub.WatchCheckpoints, request, "checkpoint")) as events:  # type: ignore[type-var]
        async for event in events:
            connected = connected or isinstance(event, Received)
            if isinstance(event, Lost):
                wrong = isinstance(event.error, ConfigError | NotFoundError)
                if wrong or not connected:
                    raise event.error
            on_event(event)
