"""What brokers answer to changes of ACLs, binding by binding."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, cast

from twinlog.kafka.admin.acl_requests import DeleteAclsResponseV1, to_wire
from twinlog.kafka.admin.acls import AclAdminMixin
from twinlog.kafka.ports import AclBinding
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient

CLUSTER_AUTHORIZATION_FAILED = 31
UNKNOWN_SERVER_ERROR = -1


def binding(name: str) -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name=name,
        pattern_type="LITERAL",
        principal="User:alice",
        host="*",
        operation="READ",
        permission="ALLOW",
    )


class Broker:
    """A client whose broker gives one answer, as bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._conns: dict[Any, Any] = {}

    async def bootstrap(self) -> None: ...

    async def reachable_node(self) -> int:
        return 1

    async def send(self, node_id: int, request: Any, group: int) -> DeleteAclsResponseV1:
        answer: DeleteAclsResponseV1 = DeleteAclsResponseV1.decode(BytesIO(self._answer))
        return answer


class Admin(AclAdminMixin):
    def __init__(self, filters: Sequence[Any]) -> None:
        broker = Broker(DeleteAclsResponseV1(0, filters).encode())
        self._wire = DataClientPool(
            "B", {}, timeout_seconds=5, new_client=lambda **_: cast("DataClient", broker)
        )


def matching(name: str, code: int = 0, message: str | None = None) -> tuple[Any, ...]:
    return (code, message, *to_wire(binding(name)))


async def test_an_acl_that_the_authorizer_does_not_delete_is_not_deleted() -> None:
    """The error of a filter is only about the filter; each ACL that it matches has one of its own."""
    names = ["done", "none", "filter", "kept", "one-kept"]
    admin = Admin(
        [
            (0, None, [matching("done")]),
            (0, None, []),
            (CLUSTER_AUTHORIZATION_FAILED, "no", []),
            (0, None, [matching("kept", UNKNOWN_SERVER_ERROR, "its store is read-only")]),
            (0, None, [matching("one-kept"), matching("one-kept", UNKNOWN_SERVER_ERROR)]),
        ]
    )
    outcome = await admin.delete_acls([binding(name) for name in names])
    errors = {each.resource_name: error for each, error in outcome.items()}
    assert [name for name in names if errors[name] is None] == ["done", "none"]
    assert getattr(errors["filter"], "code", None) == CLUSTER_AUTHORIZATION_FAILED
    assert getattr(errors["kept"], "code", None) == UNKNOWN_SERVER_ERROR
    assert "its store is read-only" in str(errors["kept"])
    assert getattr(errors["one-kept"], "code", None) == UNKNOWN_SERVER_ERROR
