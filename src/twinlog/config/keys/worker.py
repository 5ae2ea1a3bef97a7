"""Keys of MM2's driver (top level) and of its Connect workers (`B.<key>`, B being the flow's target)."""

from twinlog.config.keys.spec import ALL_SERVICES, KeySpec, Scope, Service, ValueType

_SOURCE = (Service.SOURCE,)
_NO_REST = "the services talk gRPC, see `twinlog.<service>.listen`"
_NO_WORKER = "there are no Connect workers"
_BYTES_ONLY = "records are copied byte for byte, nothing is converted"


def _driver(
    name: str, value_type: ValueType, default: str | None, meaning: str, *, distinct: bool = False
) -> KeySpec:
    return KeySpec(
        name=name, type=value_type, default=default, scope=Scope.TOP, services=ALL_SERVICES, meaning=meaning,
        distinct=distinct,
    )  # fmt: skip


def _worker(
    name: str,
    value_type: ValueType,
    default: str | None,
    meaning: str,
    *,
    scope: Scope = Scope.TARGET,
    unit: str = "",
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
    mm2_default: str | None = None,
) -> KeySpec:
    return KeySpec(
        name=name, type=value_type, default=default, scope=scope, services=_SOURCE, meaning=meaning,
        unit=unit, minimum=minimum, choices=choices, mm2_default=mm2_default,
    )  # fmt: skip


def _ignored(scope: Scope, reason: str, *names: str) -> tuple[KeySpec, ...]:
    return tuple(
        KeySpec(
            name=name,
            type=ValueType.TEXT,
            default=None,
            scope=scope,
            services=(),
            meaning="",
            no_effect=reason,
        )
        for name in names
    )


DRIVER_KEYS: tuple[KeySpec, ...] = (
    _driver("clusters", ValueType.LIST, "", "The aliases of the clusters.", distinct=True),
    _driver("config.providers", ValueType.LIST, "",
            "Names of the providers that `${name:…}` may refer to; each has "
            "`config.providers.<name>.class` and `config.providers.<name>.param.<param>`.", distinct=True),
    *_ignored(Scope.TOP, _NO_REST, "dedicated.mode.enable.internal.rest", "listeners",
              "rest.advertised.host.name", "rest.advertised.port", "rest.advertised.listener",
              "access.control.allow.origin", "access.control.allow.methods", "response.http.headers.config",
              "admin.listeners", "rest.extension.classes", "ssl.client.auth"),
)  # fmt: skip

WORKER_KEYS: tuple[KeySpec, ...] = (
    _worker("exactly.once.source.support", ValueType.TEXT, "enabled",
            "`enabled`: data and positions in one transaction. `disabled` and `preparing`: an idempotent "
            "producer, positions after the acknowledgements.", choices=("disabled", "preparing", "enabled"),
            mm2_default="disabled"),
    _worker("offset.flush.interval.ms", ValueType.INTEGER, "60000",
            "How often a partition may get an offset sync in addition to those for offset.lag.max. "
            "Also how often a preserved copy's position is stored, but at least every 5 s (docs/offsets.md).",
            unit="ms", minimum=1),
    _worker("offset.storage.topic", ValueType.TEXT, None,
            "The positions topic. Default: mm2-offsets.<source alias>.internal.",
            scope=Scope.TARGET_OR_TOP),
    _worker("offset.storage.partitions", ValueType.INTEGER, "25",
            "Partitions of the positions topic when it is created; -1 = the broker's default.",
            scope=Scope.TARGET_OR_TOP, minimum=-1),
    _worker("offset.storage.replication.factor", ValueType.INTEGER, "3",
            "Replication factor of the positions topic when it is created; -1 = the broker's default.",
            scope=Scope.TARGET_OR_TOP, minimum=-1),
    *_ignored(Scope.TARGET_OR_TOP, "there is no Connect status or config topic", "status.storage.topic",
              "status.storage.partitions", "status.storage.replication.factor", "config.storage.topic",
              "config.storage.replication.factor"),
    *_ignored(Scope.TARGET_OR_TOP, _NO_WORKER, "task.shutdown.graceful.timeout.ms",
              "worker.sync.timeout.ms", "worker.unsync.backoff.ms"),
    *_ignored(Scope.TARGET_OR_TOP, _BYTES_ONLY, "key.converter.schemas.enable",
              "value.converter.schemas.enable"),
    *_ignored(Scope.TARGET, _NO_WORKER, "group.id", "offset.flush.timeout.ms", "session.timeout.ms",
              "heartbeat.interval.ms", "rebalance.timeout.ms", "scheduled.rebalance.max.delay.ms",
              "connect.protocol", "connector.client.config.override.policy",
              "internal.topics.automatic.creation.enable", "plugin.path", "plugin.discovery",
              "topic.tracking.enable", "topic.tracking.allow.reset", "topic.creation.enable",
              "inter.worker.key.generation.algorithm", "inter.worker.key.size", "inter.worker.key.ttl.ms",
              "inter.worker.signature.algorithm", "inter.worker.verification.algorithms"),
)  # fmt: skip
