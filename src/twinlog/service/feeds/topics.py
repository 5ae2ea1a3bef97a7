"""Configsync's decisions, as its peers know them: the replicated topics of every flow, kept while configsync
is away."""

from collections.abc import Mapping
from types import MappingProxyType

import grpc
import structlog

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.clock import Clock
from twinlog.model import Flow
from twinlog.service.feeds.client import Lost, Received, Restarted, WatchEvent
from twinlog.service.feeds.followed import FollowedWatch
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog.service.interceptors import PEER_METADATA
from twinlog.service.runtime import Backoff

_log = structlog.stdlib.get_logger(__name__)

_NOTHING: Mapping[str, "ReplicatedTopic"] = MappingProxyType({})


_STATES = {
    pb2.TOPIC_STATE_READY: TopicState.READY,
    pb2.TOPIC_STATE_DELETED_AT_SOURCE: TopicState.DELETED_AT_SOURCE,
}


def replicated_topic(message: pb2.ReplicatedTopic) -> ReplicatedTopic:
    return ReplicatedTopic(
        flow=_flow(message.flow),
        source_topic=message.source_topic,
        target_topic=message.target_topic,
        partition_count=message.partition_count,
        target_partition_count=message.target_partition_count,
        source_topic_id=message.source_topic_id,
        target_topic_id=message.target_topic_id,
        generation=message.generation,
        created_after_start=message.created_after_start,
        state=_STATES.get(message.state, TopicState.WAITING),
        reason=message.reason,
        message=message.message,
        target_max_message_bytes=message.target_max_message_bytes,
        target_compression_type=message.target_compression_type,
        target_timestamp_type=message.target_timestamp_type,
        source_cleanup_policy=message.source_cleanup_policy,
    )


def _flow(message: types_pb2.Flow) -> Flow:
    return Flow(message.source, message.target)


class TopicsWatch(FollowedWatch[pb2.WatchTopicsResponse]):
    """Follows WatchTopics for all flows.

    - A. `current` is always a state that configsync was in, or the last one known while it is away.
    - B. a snapshot replaces a flow's known topics at once, when it is complete and the flow is settled in it:
      a restarted configsync that does not know all topics yet removes none.
    - C. a settled flow stays settled.
    """

    task_name = "watch-topics"

    def __init__(self, channel: grpc.aio.Channel, *, clock: Clock, backoff: Backoff) -> None:
        super().__init__(clock=clock, backoff=backoff)
        self._stub = ConfigSyncServiceStub(channel)
        self._topics: dict[Flow, dict[str, ReplicatedTopic]] = {}
        self._settled: set[Flow] = set()
        self._unconfirmed: dict[Flow, set[str]] = {}
        """Known topics that the present configsync has not sent yet; removed when it settles the flow."""
        self._snapshot: dict[Flow, dict[str, ReplicatedTopic]] | None = None
        self.connected = False
        """Whether the stream to configsync is open and has delivered something."""

    @property
    def current(self) -> Mapping[Flow, Mapping[str, ReplicatedTopic]]:
        """The topics by flow and source topic. Read-only for callers; changes in place."""
        return self._topics

    def topics(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """The topics of one flow by source topic; empty when nothing is known of it."""
        return self._topics.get(flow, _NOTHING)

    def settled(self, flow: Flow) -> bool:
        """True once configsync's selection for the flow was complete; until then an absent topic means
        nothing."""
        return flow in self._settled

    def _open(
        self, token: bytes
    ) -> grpc.aio.UnaryStreamCall[pb2.WatchTopicsRequest, pb2.WatchTopicsResponse]:
        return self._stub.WatchTopics(pb2.WatchTopicsRequest(resume_token=token), metadata=PEER_METADATA)

    def handle(self, event: WatchEvent[pb2.WatchTopicsResponse]) -> None:
        """Apply one event of the watch."""
        match event:
            case Restarted():
                self._snapshot = {}
            case Lost(error):
                self.connected = False
                left_out = self._left_out(error)
                if left_out is not None:
                    _log.warning(
                        "topics_watch_lost",
                        reason=error.reason,
                        message=str(error),
                        known_topics=sum(map(len, self._topics.values())),
                        left_out=left_out,
                    )
            case Received(response):
                if not self.connected:
                    self.connected = True
                    _log.info("topics_watch_connected")
                self._apply(response)

    def _apply(self, response: pb2.WatchTopicsResponse) -> None:
        match response.WhichOneof("event"):
            case "snapshot_item":
                if self._snapshot is not None:
                    self._put(self._snapshot, replicated_topic(response.snapshot_item))
                return
            case "snapshot_end":
                self._replace({_flow(flow) for flow in response.snapshot_end.settled_flows})
            case "changed":
                changed = replicated_topic(response.changed)
                self._put(self._topics, changed)
                self._unconfirmed.get(changed.flow, set()).discard(changed.source_topic)
            case "removed":
                removed = replicated_topic(response.removed)
                self._topics.get(removed.flow, {}).pop(removed.source_topic, None)
            case "flow_settled":
                self._settle(_flow(response.flow_settled))
            case _:
                return
        self._tell()

    def _replace(self, settled: set[Flow]) -> None:
        """Invariant B: take over the snapshot, and keep the topics that it may not know yet."""
        fresh = self._snapshot or {}
        self._snapshot = None
        self._unconfirmed.clear()
        for flow, known in self._topics.items():
            missing = {name: topic for name, topic in known.items() if name not in fresh.get(flow, _NOTHING)}
            if missing and flow not in settled:
                fresh[flow] = {**missing, **fresh.get(flow, {})}
                self._unconfirmed[flow] = set(missing)
        self._topics = fresh
        for flow in settled:
            self._settle(flow)

    def _settle(self, flow: Flow) -> None:
        self._settled.add(flow)
        for name in self._unconfirmed.pop(flow, set()):
            self._topics[flow].pop(name, None)

    @staticmethod
    def _put(topics: dict[Flow, dict[str, ReplicatedTopic]], topic: ReplicatedTopic) -> None:
        topics.setdefault(topic.flow, {})[topic.source_topic] = topic
