"""Lets a class of another package make changes on the target instead of Kafka: `forwarding.admin.class`.

For each method that the class has, it is called instead of sending Kafka's request. Everything else, and
every read, goes to Kafka. The class gets one call at a time, in a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeVar, cast

from twinlog.config.values.other_classes import POLICIES, other_class
from twinlog.errors import ConfigError, KafkaError, TransientKafkaError
from twinlog.kafka.ports import AclBinding, ConfigChange, KafkaCluster, NewTopic

KEY: Final = "forwarding.admin.class"
METHODS: Final = ("create_topic", "grow_topic", "alter_topic", "delete_topic", "create_acl", "delete_acl")
MOST_SECONDS: Final = 60.0
"""The time-out of one call. After it the change counts as refused, and is planned again."""

K = TypeVar("K", bound=Hashable)


def forwarded(target: KafkaCluster, class_name: str, properties: Mapping[str, str]) -> KafkaCluster:
    """The target as configsync changes it: unchanged if the class is Kafka's own. `properties` are those of
    the target's admin client; the class is created with them. Raises ConfigError."""
    make = other_class(POLICIES, class_name)
    if make is None:
        return target
    try:
        admin = make(dict(properties))
    except Exception as error:  # Code of another package.
        raise ConfigError(
            f"{KEY}: {class_name}: {type(error).__name__}: {error}",
            metadata={"key": KEY, "value": class_name},
        ) from error
    if not any(callable(getattr(admin, name, None)) for name in METHODS):
        raise ConfigError(
            f"{KEY}: {class_name} has none of {', '.join(METHODS)} (docs/policies.md)",
            metadata={"key": KEY, "value": class_name},
        )
    return cast("KafkaCluster", ForwardedCluster(target, admin, class_name))


class ForwardedCluster:
    """The cluster, except for the changes that the class makes."""

    def __init__(self, cluster: KafkaCluster, admin: Any, class_name: str) -> None:
        self._cluster = cluster
        self._admin = admin
        self._class_name = class_name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create_topics(self, topics: Collection[NewTopic]) -> Mapping[str, KafkaError | None]:
        return await self._each(
            "create_topic",
            {topic.name: asdict(topic) for topic in topics},
            lambda: self._cluster.create_topics(topics),
        )

    async def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, KafkaError | None]:
        return await self._each(
            "grow_topic",
            {name: {"name": name, "partition_count": count} for name, count in counts.items()},
            lambda: self._cluster.create_partitions(counts),
        )

    async def alter_topic_configs(
        self, changes: Mapping[str, Collection[ConfigChange]]
    ) -> Mapping[str, KafkaError | None]:
        return await self._each(
            "alter_topic",
            {
                name: {"name": name, "configs": {each.name: each.value for each in of_topic}}
                for name, of_topic in changes.items()
            },
            lambda: self._cluster.alter_topic_configs({name: list(each) for name, each in changes.items()}),
        )

    async def delete_topics(self, names: Collection[str]) -> Mapping[str, KafkaError | None]:
        return await self._each(
            "delete_topic",
            {name: {"name": name} for name in names},
            lambda: self._cluster.delete_topics(names),
        )

    async def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        return await self._each(
            "create_acl",
            {binding: asdict(binding) for binding in bindings},
            lambda: self._cluster.create_acls(bindings),
        )

    async def delete_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        return await self._each(
            "delete_acl",
            {binding: asdict(binding) for binding in bindings},
            lambda: self._cluster.delete_acls(bindings),
        )

    async def _each(
        self,
        method: str,
        wanted: Mapping[K, dict[str, Any]],
        by_kafka: Callable[[], Awaitable[Mapping[K, KafkaError | None]]],
    ) -> Mapping[K, KafkaError | None]:
        change = getattr(self._admin, method, None)
        if change is None:
            return await by_kafka()
        return {key: await self._changed(method, change, fields) for key, fields in wanted.items()}

    async def _changed(
        self, method: str, change: Callable[..., object], fields: dict[str, Any]
    ) -> KafkaError | None:
        """None when it is done; what it raises otherwise, as an error that the next plan tries again."""
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.to_thread(change, **fields)
        except TimeoutError:
            why = f"no answer within {MOST_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 (the boundary of others' code)
            why = f"{type(error).__name__}: {error}"
        else:
            return None
        return TransientKafkaError(f"{self._class_name}.{method}: {why}", reason="FORWARDING_FAILED")
