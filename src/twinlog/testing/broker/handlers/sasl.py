"""SaslHandshake, SaslAuthenticate (KIP-43, KIP-152)."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.sasl import MECHANISMS, LoginError

HANDLERS = Handlers()


@HANDLERS.serves("sasl_handshake")
async def sasl_handshake(call: Call) -> Fields:
    """The mechanism that the client has chosen."""
    if call.cluster.passwords is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    if call.body.mechanism not in MECHANISMS:
        return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": MECHANISMS}
    call.login.mechanism = call.body.mechanism
    return {"error_code": call.injected, "mechanisms": MECHANISMS}


@HANDLERS.serves("sasl_authenticate")
async def sasl_authenticate(call: Call) -> Fields:
    """The next message of the client."""
    passwords = call.cluster.passwords
    if passwords is None or call.login.mechanism is None:
        return _refused(ErrorCode.illegal_sasl_state, "SaslAuthenticate without a handshake")
    try:
        data = call.login.answer(bytes(call.body.auth_bytes), passwords, call.cluster.random)
    except LoginError as error:
        return _refused(ErrorCode.sasl_authentication_failed, str(error))
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": data}


def _refused(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "auth_bytes": b""}
