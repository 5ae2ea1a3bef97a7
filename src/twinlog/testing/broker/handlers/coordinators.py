"""FindCoordinator."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields

HANDLERS = Handlers()
_MANY_KEYS_VERSION = 4


@HANDLERS.serves("find_coordinator")
async def find_coordinator(call: Call) -> Fields:
    """Several keys at once from version 4 on (KIP-699)."""
    key_type = int(call.get("key_type", 0))
    if call.version >= _MANY_KEYS_VERSION:
        return {"coordinators": [_coordinator(call, key_type, key) for key in call.body.coordinator_keys]}
    return _coordinator(call, key_type, call.body.key)


def _coordinator(call: Call, key_type: int, key: str) -> Fields:
    node = call.cluster.coordinator(key_type, key)
    error = call.injected or (ErrorCode.none if node else ErrorCode.coordinator_not_available)
    found = node if node is not None and not error else None
    return {
        **({"key": key} if call.version >= _MANY_KEYS_VERSION else {}),
        "node_id": found.node_id if found else -1,
        "host": found.host if found else "",
        "port": found.port if found else -1,
        "error_code": error,
        "error_message": None if not error else error.name,
    }
