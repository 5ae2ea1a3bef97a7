"""Environment variables for calling services; they override the file."""

from collections.abc import Mapping
from dataclasses import replace

from twinlog.config.security import ClientSecurity

CA_VARIABLE = "TWINLOG_CA_FILE"
CERTIFICATE_VARIABLE = "TWINLOG_CERTIFICATE_FILE"
KEY_VARIABLE = "TWINLOG_KEY_FILE"
TOKEN_VARIABLE = "TWINLOG_TOKEN_FILE"  # noqa: S105 (a name)
SERVER_NAME_VARIABLE = "TWINLOG_SERVER_NAME"


def of_environment(security: ClientSecurity, environment: Mapping[str, str]) -> ClientSecurity:
    """`security` with what the environment names.

    >>> of_environment(ClientSecurity(), {"TWINLOG_CA_FILE": "ca.pem"}).tls
    True
    """
    ca = environment.get(CA_VARIABLE, "")
    certificate, key = environment.get(CERTIFICATE_VARIABLE, ""), environment.get(KEY_VARIABLE, "")
    return replace(
        security,
        tls=security.tls or bool(ca),
        ca=ca or security.ca,
        certificate=certificate or security.certificate,
        key=key or security.key,
        token_file=environment.get(TOKEN_VARIABLE, "") or security.token_file,
        server_name=environment.get(SERVER_NAME_VARIABLE, "") or security.server_name,
    )
