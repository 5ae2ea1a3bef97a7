"""Routes: the topics to which records are sent one by one, apart from the copy of their topic.

The source service writes a row before the first record takes a route; configsync then makes the topic, as if
a topic of this name were on the source. Both find the rows in `mm2-configsync.<A>.internal`, where only the
source service writes this kind.

A topic that was deleted on the target stays away until a record takes its route again: then the row has the
id of that topic.
"""

import json
from dataclasses import dataclass

from twinlog.errors import WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.replicated_topics import REGISTRY, StoredRoute
from twinlog.wire.connect_json import loads

_KIND, _VERSION = "route", 1


Routes = Table[str, StoredRoute]
"""By name on the source."""


@dataclass(frozen=True, slots=True)
class RouteCodec:
    """`["route","orders-eu"]` → `{"version":1,"source_topic":"orders"}`, and `instead_of` if there is one."""

    def decode_key(self, key: bytes) -> str | None:
        match loads(key, REGISTRY):
            case [str(kind), str(name)] if kind == _KIND:
                return name
        return None

    def decode_value(self, key: str, value: bytes) -> StoredRoute:
        match loads(value, REGISTRY):
            case {"version": int(version), "source_topic": str(topic), **more} if version == _VERSION:
                return StoredRoute(topic, str(more.get("instead_of", "")))
        raise WireFormatError(
            f"the record of the route {key} is not of version {_VERSION}", reason="WIRE_VERSION"
        )

    def encode(self, key: str, value: StoredRoute | None) -> tuple[bytes, bytes | None]:
        if value is None:
            return _json([_KIND, key]), None
        more = {"instead_of": value.instead_of} if value.instead_of else {}
        return _json([_KIND, key]), _json({"version": _VERSION, "source_topic": value.source_topic, **more})


def routes_of(flow: Flow, target: KafkaCluster) -> Routes:
    return Table(cluster=target, topic=configsync_topic(flow.source), codec=RouteCodec(), keeps=True)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
