"""The gauges of configsync: asked from another thread, they read and never change."""

from collections.abc import Iterable, Sequence

from opentelemetry.metrics import Meter, Observation

from twinlog.clock import Clock
from twinlog.service.lease import STANDS_BY
from twinlog.telemetry import metrics
from twinlog_configsync.flow.sync import FlowSync
from twinlog_configsync.flow.topic_feed import TopicBoard


def observe(meter: Meter, topics: TopicBoard, syncs: Sequence[FlowSync], *, clock: Clock) -> None:
    """Publish topics by state, and what is not in step by part."""

    def topics_by_state() -> Iterable[Observation]:
        counts: dict[tuple[str, str, str], int] = {}
        for flow, entry in topics.topics():
            key = (flow.source, flow.target, entry.state.value)
            counts[key] = counts.get(key, 0) + 1
        return [
            Observation(count, {**metrics.flow_attributes(source, target), "twinlog.state": state})
            for (source, target, state), count in counts.items()
        ]

    def pending_by_scope() -> Iterable[Observation]:
        return [
            Observation(
                status.pending_changes,
                {
                    **metrics.flow_attributes(sync.flow.source, sync.flow.target),
                    "twinlog.resource.type": scope,
                },
            )
            for sync in syncs
            for scope, status in sync.status.scopes.items()
        ]

    def ages() -> Iterable[Observation]:
        now_ms = clock.now_ms()
        return [
            Observation(
                max(0, now_ms - at) / 1000, metrics.flow_attributes(sync.flow.source, sync.flow.target)
            )
            for sync in syncs
            if (at := sync.status.last_refresh_ms) is not None and sync.status.reason not in STANDS_BY
        ]

    metrics.gauge(meter, metrics.CONFIGSYNC_AGE, ages)
    metrics.gauge(meter, metrics.CONFIGSYNC_TOPICS, topics_by_state)
    metrics.gauge(meter, metrics.CONFIGSYNC_DRIFT, pending_by_scope)
