"""FindCoordinator."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields

HANDLERS = Handlers()
_MANY_KEYS_VERSION = 4
_RESOURCES = {
    0: (Resource.GROUP, ErrorCode.group_authorization_failed),
    1: (Resource.TRANSACTIONAL_ID, ErrorCode.transactional_id_authorization_failed),
}


@HANDLERS.serves("find_coordinator")
async def find_coordinator(call: Call) -> Fields:
    """Several keys at once from version 4 on (KIP-699)."""
    key_type = int(call.get("key_type", 0))
    if call.version >= _MANY_KEYS_VERSION:
        return {"coordinators": [_coordinator(call, key_type, key) for key in call.body.coordinator_keys]}
    return _coordinator(call, key_type, call.body.key)


def _coordinator(call: Call, key_type: int, key: str) -> Fields:
    node = call.cluster.coordinator(key_type, key)
    denied = ErrorCode.none
    resource, refusal = _RESOURCES.get(key_type, _RESOURCES[0])
    if not call.allows(Operation.DESCRIBE, resource, key):
        denied = refusal
    error = call.injected or denied or (ErrorCode.none if node else ErrorCode.coordinator_not_available)
    found = node if node is not None and not error else None
    return {
        **({"key": key} if call.version >= _MANY_KEYS_VERSION else {}),
        "node_id": found.node_id if found else -1,
        "host": found.host if found else "",
        "port": found.port if found else -1,
        "error_code": error,
        "error_message": None if not error else error.name,
    }
