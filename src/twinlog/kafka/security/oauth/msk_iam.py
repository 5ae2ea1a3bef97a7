"""Tokens for Amazon MSK with IAM: a signed request, created by Amazon's package from AWS credentials.

MSK's brokers accept it as OAUTHBEARER, on the port on which they accept AWS_MSK_IAM from Java clients.
"""

import importlib
import re
from typing import Any

from twinlog.kafka.security.oauth.login import AwsIdentity, TokenError

PACKAGE = "aws-msk-iam-sasl-signer-python"
_MODULE = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
_REGION = re.compile(r"\.(?:kafka|kafka-serverless)\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


def region_of(host: str) -> str:
    """The region that stands in the name of a broker of MSK, "" for other names.

    >>> region_of("b-1.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com")
    'eu-central-1'
    """
    found = _REGION.search(host.lower())
    return found[1] if found else ""


def has_signer() -> bool:
    """Whether Amazon's package is installed."""
    return _signer() is not None


def msk_token(identity: AwsIdentity) -> tuple[str, float]:
    """A token and its expiry in seconds since 1970. Blocks: credentials may come from an AWS server. Raises
    TokenError."""
    provider = _signer()
    if provider is None:
        raise TokenError(f"the package {PACKAGE} is not installed", refused=True)
    try:
        if identity.role_arn:
            session = identity.role_session or "twinlog"
            text, expiry_ms = provider.generate_auth_token_from_role_arn(
                identity.region, identity.role_arn, session
            )
        elif identity.profile:
            text, expiry_ms = provider.generate_auth_token_from_profile(identity.region, identity.profile)
        else:
            text, expiry_ms = provider.generate_auth_token(identity.region)
    except Exception as error:  # noqa: BLE001  # the loop boundary of a library with errors of its own
        # Only the type: messages of the AWS library may contain what was sent.
        raise TokenError(f"AWS gave no credentials to sign with: {type(error).__name__}") from None
    return str(text), float(expiry_ms) / 1000


def _signer() -> Any:
    try:
        return importlib.import_module(_MODULE)
    except ImportError:
        return None
