"""Configuration of topics and brokers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.admin.changes import batches, change, error_of, in_batches, no_answer_at_all
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import ConfigChange, ConfigEntry, ConfigSource
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.schemas import SchemaRequest

_SOURCES: Final = {
    1: ConfigSource.TOPIC,
    2: ConfigSource.DYNAMIC_BROKER,
    3: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    4: ConfigSource.STATIC_BROKER,
    5: ConfigSource.DEFAULT,
}
"""By the numbers of DescribeConfigsResponse.ConfigSource."""
_TOPIC, _BROKER = 2, 4
"""Types of a resource (ConfigResource.Type)."""
_SET, _DELETE = 0, 1
TOPICS_A_REQUEST: Final = 500
"""The configs of a topic are about 4 KB on the wire, and an answer is decoded in one go."""


class ConfigAdminMixin:
    """Implements `ConfigAdmin`."""

    _wire: DataClientPool

    async def describe_topic_configs(
        self, names: Collection[str], *, keys: Collection[str] = ()
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        answers: dict[str, Sequence[ConfigEntry] | KafkaError] = {}
        silence: KafkaError | None = None
        for page in batches(sorted(set(names)), most=TOPICS_A_REQUEST):
            if silence is not None:
                answers |= dict.fromkeys(page, silence)
                continue
            answered = await self._describe(page, keys)
            answers |= answered
            silence = no_answer_at_all(answered)
        return answers

    async def _describe(
        self, names: Sequence[str], keys: Collection[str]
    ) -> dict[str, Sequence[ConfigEntry] | KafkaError]:
        doing = "describe topic configs"
        try:
            async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
                answer = await self._wire.send_any(_describe_configs(_TOPIC, names, keys), doing)
        except TransientKafkaError as error:
            # A cluster that is down is an error of each topic.
            return dict.fromkeys(names, error)
        missing = from_code(ErrorCode.UNKNOWN_SERVER_ERROR, doing, alias=self._wire.alias)
        described: dict[str, Sequence[ConfigEntry] | KafkaError] = dict.fromkeys(names, missing)
        described |= {result.resource_name: self._config_entries(result, doing) for result in answer.results}
        return described

    async def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        doing = "describe the configs of a broker"
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            node_id = await self._wire.any_node(doing)
            answer = await self._wire.send(node_id, _describe_configs(_BROKER, [str(node_id)], ()), doing)
        (told,) = (self._config_entries(result, doing) for result in answer.results)
        if isinstance(told, KafkaError):
            raise told
        return told

    def _config_entries(self, result: Any, doing: str) -> list[ConfigEntry] | KafkaError:
        return error_of(self._wire, result.error_code, result.error_message, doing) or [
            ConfigEntry(
                name=entry.name,
                value=entry.value,
                source=_SOURCES.get(entry.config_source, ConfigSource.UNKNOWN),
                read_only=entry.read_only,
                sensitive=entry.is_sensitive,
            )
            for entry in sorted(result.configs, key=lambda entry: str(entry.name))
        ]

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
            {
                "resource_type": _TOPIC,
                "resource_name": name,
                "configs": [
                    {
                        "name": each.name,
                        "config_operation": _DELETE if each.value is None else _SET,
                        "value": each.value,
                    }
                    for each in wanted
                ],
            }
            for name, wanted in changes
        ]
        asked = {"resources": resources, "validate_only": False}
        return await change(
            self._wire,
            SchemaRequest("incremental_alter_configs", range(2), asked),
            "alter topic configs",
            [name for name, _ in changes],
            lambda answer: (
                (each.resource_name, each.error_code, each.error_message) for each in answer.responses
            ),
        )


def _describe_configs(kind: int, names: Sequence[str], keys: Collection[str]) -> SchemaRequest:
    """Of all keys if none is given."""
    wanted = sorted(keys) or None
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": wanted} for name in names
    ]
    return SchemaRequest("describe_configs", range(1, 5), {"resources": resources})
