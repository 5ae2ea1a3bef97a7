"""What brokers answer to changes of ACLs, binding by binding."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from kio.index import load_response_schema

from twinlog.kafka.admin.settings import AclAdminMixin, to_wire
from twinlog.kafka.ports import AclBinding
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.requests import API_KEYS, build

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
    """A client whose broker gives one answer."""

    def __init__(self, filters: Sequence[Mapping[str, Any]]) -> None:
        self._answer = build(load_response_schema(API_KEYS["delete_acls"], 1), {"filter_results": filters})
        self._conns: dict[Any, Any] = {}

    async def bootstrap(self) -> None: ...

    async def ask_controller(self, ask: Callable[[int], Awaitable[Any]], *, no_other: bool) -> Any:
        return await ask(1)

    async def send(self, node_id: int, request: Any, group: int) -> Any:
        return self._answer


class Admin(AclAdminMixin):
    def __init__(self, filters: Sequence[Mapping[str, Any]]) -> None:
        broker = Broker(filters)
        self._wire = DataClientPool(
            "B", {}, timeout_seconds=5, new_client=lambda **_: cast("DataClient", broker)
        )


def matching(name: str, code: int = 0, message: str | None = None) -> Mapping[str, Any]:
    return {"error_code": code, "error_message": message, **to_wire(binding(name))}


def filtered(*matches: Mapping[str, Any], code: int = 0, message: str | None = None) -> Mapping[str, Any]:
    return {"error_code": code, "error_message": message, "matching_acls": matches}


async def test_an_acl_that_the_authorizer_does_not_delete_is_not_deleted() -> None:
    """The error of a filter is only about the filter; each ACL that it matches has one of its own."""
    names = ["done", "none", "filter", "kept", "one-kept"]
    admin = Admin(
        [
            filtered(matching("done")),
            filtered(),
            filtered(code=CLUSTER_AUTHORIZATION_FAILED, message="no"),
            filtered(matching("kept", UNKNOWN_SERVER_ERROR, "its store is read-only")),
            filtered(matching("one-kept"), matching("one-kept", UNKNOWN_SERVER_ERROR)),
        ]
    )
    outcome = await admin.delete_acls([binding(name) for name in names])
    errors = {each.resource_name: error for each, error in outcome.items()}
    assert [name for name in names if errors[name] is None] == ["done", "none"]
    assert getattr(errors["filter"], "code", None) == CLUSTER_AUTHORIZATION_FAILED
    assert getattr(errors["kept"], "code", None) == UNKNOWN_SERVER_ERROR
    assert "its store is read-only" in str(errors["kept"])
    assert getattr(errors["one-kept"], "code", None) == UNKNOWN_SERVER_ERROR
