"""The ACLs of a cluster, with Kafka's names."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from twinlog.errors import KafkaError
from twinlog.kafka.admin.acl_requests import (
    AclResourceType,
    CreateAcls,
    DeleteAcls,
    DescribeAcls,
    from_wire,
    to_wire,
)
from twinlog.kafka.admin.batches import in_batches
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import AclBinding
from twinlog.kafka.protocol.client_pool import DataClientPool


class AclAdminMixin:
    """Implements `AclAdmin` with requests of our own; any broker forwards changes to the controller."""

    _wire: DataClientPool

    async def describe_acls(self, resource_type: str = "ANY") -> Collection[AclBinding] | None:
        doing = f"describe ACLs of type {resource_type}"
        if resource_type not in AclResourceType.__members__:
            raise from_code(
                ErrorCode.INVALID_REQUEST, doing, alias=self._wire.alias, detail="no such resource type"
            )
        answer = await self._ask(DescribeAcls(AclResourceType[resource_type]), doing)
        if answer.error_code == ErrorCode.SECURITY_DISABLED:
            return None
        if answer.error_code:
            raise from_code(
                answer.error_code, doing, alias=self._wire.alias, detail=answer.error_message or ""
            )
        return from_wire(answer.resources)

    async def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        return await in_batches(
            bindings,
            lambda batch: self._change(batch, "create an ACL", CreateAcls, lambda answer: answer.results),
            key=lambda binding: binding,
        )

    async def delete_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        return await in_batches(
            bindings,
            lambda batch: self._change(
                batch,
                "delete an ACL",
                DeleteAcls,
                lambda answer: [_deletion_result(*each) for each in answer.filter_results],
            ),
            key=lambda binding: binding,
        )

    async def _change(
        self,
        bindings: Collection[AclBinding],
        doing: str,
        request: Callable[[Sequence[AclBinding]], Any],
        results: Callable[[Any], Sequence[tuple[int, str | None]]],
    ) -> Mapping[AclBinding, KafkaError | None]:
        known: list[AclBinding] = []
        outcome: dict[AclBinding, KafkaError | None] = {}
        for binding in bindings:
            try:
                to_wire(binding)
                known.append(binding)
            except KeyError as error:
                outcome[binding] = from_code(
                    ErrorCode.INVALID_REQUEST,
                    doing,
                    alias=self._wire.alias,
                    detail=f"Kafka has no {error.args[0]}",
                )
        if known:
            answer = await self._ask(request(known), doing)
            for binding, (code, message) in zip(known, results(answer), strict=True):
                outcome[binding] = (
                    from_code(code, doing, alias=self._wire.alias, detail=message or "") if code else None
                )
        return outcome

    async def _ask(self, request: Any, doing: str) -> Any:
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            return await self._wire.send(await self._wire.any_node(doing), request, doing)


def _deletion_result(code: int, message: str | None, matching: Sequence[Any]) -> tuple[int, str | None]:
    """The error of a filter, or else of an ACL that it matches and the authorizer did not delete."""
    errors = ((each[0], each[1]) for each in matching if each[0])
    return (code, message) if code else next(errors, (0, None))
