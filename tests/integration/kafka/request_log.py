"""What a broker was asked, as its own request log tells it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

from twinlog.local.blocking_cluster import BlockingCluster

_BROKER_LOGGER, _SET = 8, 0
_TOLD = "Completed request:"
_TEXT = String("utf-8")


class _AlterConfigsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("resource_type", Int8),
                ("resource_name", _TEXT),
            ),
        ),
    )


class _AlterConfigsRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _AlterConfigsResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", _TEXT),
                ("configs", Array(("name", _TEXT), ("config_operation", Int8), ("value", _TEXT))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _TellRequests(Request[_AlterConfigsRequest]):  # type: ignore[misc]
    API_KEY = 44

    def __init__(self, *, broker_id: int) -> None:
        self._broker_id = broker_id

    def build(self, request_struct_class: type[_AlterConfigsRequest]) -> _AlterConfigsRequest:
        level = ("kafka.request.logger", _SET, "DEBUG")
        return request_struct_class([(_BROKER_LOGGER, str(self._broker_id), [level])], False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRequest:
    kind: str
    """As the protocol names it, in capitals: FETCH."""
    client_id: str
    connection: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """The requests that one broker logged; by default the broker of a cluster that has no other."""

    cluster: BlockingCluster
    broker_id: int = 1

    async def begin(self) -> None:
        """Have the broker write down every request from now on."""
        client = AIOKafkaClient(bootstrap_servers=self.cluster.bootstrap_servers)
        await client.bootstrap()
        try:
            answer = await client.send(self.broker_id, _TellRequests(broker_id=self.broker_id))
        finally:
            await client.close()
        assert [code for code, *_ in answer.responses] == [0], answer

    def of(self, kind: str, client_id: str) -> list[AskedRequest]:
        """The requests of one kind so far by clients whose id begins so."""
        return [each for each in self._all() if each.kind == kind and each.client_id.startswith(client_id)]

    def _all(self) -> Iterator[AskedRequest]:
        for line in self.cluster.log_file(self.broker_id).read_text(errors="replace").splitlines():
            _, told, text = line.partition(_TOLD)
            if told:
                found, _ = json.JSONDecoder().raw_decode(text)
                header = found["requestHeader"]
                yield AskedRequest(
                    kind=header["requestApiKeyName"],
                    client_id=header["clientId"] or "",
                    connection=found["connection"],
                    body=found["request"],
                )
