"""Configuration of topics and brokers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka.protocol.admin import DescribeConfigsRequest
from confluent_kafka.admin import AlterConfigOpType, ConfigResource, ResourceType
from confluent_kafka.admin import ConfigEntry as LibrdkafkaConfigEntry
from confluent_kafka.admin import ConfigSource as LibrdkafkaConfigSource

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.admin.batches import batches, in_batches, no_answer_at_all
from twinlog.kafka.admin.client import AdminSession
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import ConfigChange, ConfigEntry, ConfigSource
from twinlog.kafka.protocol.client_pool import DataClientPool

_SOURCES = {
    LibrdkafkaConfigSource.DYNAMIC_TOPIC_CONFIG.value: ConfigSource.TOPIC,
    LibrdkafkaConfigSource.DYNAMIC_BROKER_CONFIG.value: ConfigSource.DYNAMIC_BROKER,
    LibrdkafkaConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    LibrdkafkaConfigSource.STATIC_BROKER_CONFIG.value: ConfigSource.STATIC_BROKER,
    LibrdkafkaConfigSource.DEFAULT_CONFIG.value: ConfigSource.DEFAULT,
}


_TOPIC: Final = 2
"""The type of a resource in the protocol."""
TOPICS_A_REQUEST: Final = 500
"""The configs of a topic are about 4 KB on the wire; librdkafka and brokers limit the size of an answer."""


class ConfigAdminMixin:
    """Implements `ConfigAdmin` with confluent-kafka."""

    _admin: AdminSession
    _wire: DataClientPool

    async def describe_topic_configs(
        self, names: Collection[str], *, keys: Collection[str] = ()
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        if not names:
            return {}
        answers: dict[str, Sequence[ConfigEntry] | KafkaError] = {}
        silence: KafkaError | None = None
        for page in batches(sorted(set(names)), most=TOPICS_A_REQUEST):
            if silence is not None:
                answers |= dict.fromkeys(page, silence)
                continue
            answered = await (self._describe_keys(page, keys) if keys else self._describe(page))
            answers |= answered
            silence = no_answer_at_all(answered)
        return answers

    async def _describe(self, names: Sequence[str]) -> dict[str, Sequence[ConfigEntry] | KafkaError]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        described = await self._admin.each(
            "describe topic configs",
            lambda admin, seconds: admin.describe_configs(resources, request_timeout=seconds),
        )
        return {
            resource.name: answer if isinstance(answer, KafkaError) else _entries(answer)
            for resource, answer in described.items()
        }

    async def _describe_keys(
        self, names: Sequence[str], keys: Collection[str]
    ) -> dict[str, Sequence[ConfigEntry] | KafkaError]:
        """For single configs; librdkafka always requests all."""
        doing = "describe topic configs"
        request = DescribeConfigsRequest([(_TOPIC, name, sorted(keys)) for name in names], False)
        try:
            async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
                answer = await self._wire.send_any(request, doing)
        except TransientKafkaError as error:
            # Like librdkafka: a cluster that is down is an error of each topic.
            return dict.fromkeys(names, error)
        missing = from_code(ErrorCode.UNKNOWN_SERVER_ERROR, doing, alias=self._wire.alias)
        described: dict[str, Sequence[ConfigEntry] | KafkaError] = dict.fromkeys(names, missing)
        described |= {
            name: from_code(code, doing, alias=self._wire.alias, detail=message or "")
            if code
            else [
                ConfigEntry(
                    name=key,
                    value=value,
                    source=_SOURCES.get(source, ConfigSource.UNKNOWN),
                    read_only=read_only,
                    sensitive=sensitive,
                )
                for key, value, read_only, source, sensitive, *_ in sorted(entries)
            ]
            for code, message, _type, name, entries in answer.resources
        }
        return described

    async def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        doing = "describe the configs of a broker"
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            node_id = await self._wire.any_node(doing)
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        described = await self._admin.one(
            f"describe the configs of broker {node_id}",
            lambda admin, seconds: admin.describe_configs([resource], request_timeout=seconds)[resource],
        )
        return _entries(described)

    async def alter_topic_configs(
        self, changes: Mapping[str, Sequence[ConfigChange]]
    ) -> Mapping[str, KafkaError | None]:
        untouched = {name: None for name, wanted in changes.items() if not wanted}
        altered = await in_batches(
            [(name, wanted) for name, wanted in changes.items() if wanted],
            self._alter,
            key=lambda each: each[0],
            records=lambda each: len(each[1]),
        )
        return untouched | altered

    async def _alter(
        self, changes: Collection[tuple[str, Sequence[ConfigChange]]]
    ) -> Mapping[str, KafkaError | None]:
        resources = [
            ConfigResource(
                ResourceType.TOPIC, name, incremental_configs=[_change(change) for change in wanted]
            )
            for name, wanted in changes
        ]
        altered = await self._admin.each(
            "alter topic configs",
            lambda admin, seconds: admin.incremental_alter_configs(resources, request_timeout=seconds),
        )
        return {
            resource.name: answer if isinstance(answer, KafkaError) else None
            for resource, answer in altered.items()
        }


def _entries(described: Mapping[str, Any]) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            name=entry.name,
            value=entry.value,
            source=_SOURCES.get(_number(entry.source), ConfigSource.UNKNOWN),
            read_only=entry.is_read_only,
            sensitive=entry.is_sensitive,
        )
        for entry in sorted(described.values(), key=lambda entry: entry.name)
    ]


def _number(source: Any) -> int:
    """confluent-kafka returns a plain number where its documentation says an enum."""
    return source.value if isinstance(source, LibrdkafkaConfigSource) else int(source)


def _change(change: ConfigChange) -> LibrdkafkaConfigEntry:
    if change.value is None:
        return LibrdkafkaConfigEntry(change.name, None, incremental_operation=AlterConfigOpType.DELETE)
    return LibrdkafkaConfigEntry(change.name, change.value, incremental_operation=AlterConfigOpType.SET)
