"""Amazon's login for MSK: the options of aws-msk-iam-auth, and the region in the brokers' names."""

import os

from twinlog.kafka.security.oauth.login import AwsIdentity, Grant, OAuthLogin
from twinlog.kafka.security.oauth.msk_iam import PACKAGE, has_signer, region_of
from twinlog.kafka.security.oauth.reading import JAAS, LoginReader


def msk_login(reader: LoginReader) -> OAuthLogin:
    """The login with tokens that AWS credentials sign. Raises ConfigError."""
    if not has_signer():
        raise reader.refused(
            "sasl.mechanism", f"it needs the package {PACKAGE}: pip install 'twinlog-core[msk]'"
        )
    hosts = [entry.rpartition(":")[0] for entry in reader.properties.get("bootstrap.servers", "").split(",")]
    region = next(filter(None, map(region_of, hosts)), "")
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    if not region:
        raise reader.refused(
            "bootstrap.servers",
            "no name of a broker says its AWS region; set AWS_REGION in the environment",
        )
    for name in ("awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleExternalId"):
        if reader.options.get(name):
            raise reader.refused(JAAS, f"{name} is not supported; put it into a profile of AWS's own files")
    return reader.made(
        grant=Grant.MSK_IAM,
        aws=AwsIdentity(
            region=region,
            profile=reader.options.get("awsProfileName", ""),
            role_arn=reader.options.get("awsRoleArn", ""),
            role_session=reader.options.get("awsRoleSessionName", ""),
        ),
    )
