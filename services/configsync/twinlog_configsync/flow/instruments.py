"""The gauges of configsync. Scrapes run in another thread, so the callbacks only read."""

from collections.abc import Iterable, Sequence

from opentelemetry.metrics import Meter, Observation

from twinlog.clock import Clock
from twinlog.service.owner.name import STANDS_BY
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.configsync import CONFIGSYNC_AGE, CONFIGSYNC_DRIFT, CONFIGSYNC_TOPICS
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog_configsync.flow.sync import FlowSync
from twinlog_configsync.flow.topic_feed import TopicBoard


def observe(meter: Meter, topics: TopicBoard, syncs: Sequence[FlowSync], *, clock: Clock) -> None:
    """Publish topics by state, and missing changes by part."""

    def topics_by_state() -> Iterable[Observation]:
        counts: dict[tuple[str, str, str], int] = {}
        for flow, entry in topics.topics():
            key = (flow.source, flow.target, entry.state.value)
            counts[key] = counts.get(key, 0) + 1
        return [
            Observation(count, {**flow_attributes(source, target), "twinlog.state": state})
            for (source, target, state), count in counts.items()
        ]

    def pending_by_scope() -> Iterable[Observation]:
        return [
            Observation(
                status.pending_changes,
                {
                    **flow_attributes(sync.flow.source, sync.flow.target),
                    "twinlog.resource.type": scope,
                },
            )
            for sync in syncs
            for scope, status in sync.status.scopes.items()
        ]

    def ages() -> Iterable[Observation]:
        now_ms = clock.now_ms()
        return [
            Observation(max(0, now_ms - at) / 1000, flow_attributes(sync.flow.source, sync.flow.target))
            for sync in syncs
            if (at := sync.status.last_refresh_ms) is not None and sync.status.reason not in STANDS_BY
        ]

    instruments.gauge(meter, CONFIGSYNC_AGE, ages)
    instruments.gauge(meter, CONFIGSYNC_TOPICS, topics_by_state)
    instruments.gauge(meter, CONFIGSYNC_DRIFT, pending_by_scope)
