"""AWS_MSK_IAM: the options of aws-msk-iam-auth, and tokens as MSK's brokers take them."""

import base64
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from twinlog.errors import ConfigError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.security.access import ClusterAccess, client_security
from twinlog.kafka.security.oauth.reading import AwsIdentity, OAuthLogin
from twinlog.kafka.security.oauth.settings import has_signer

MSK = {
    "bootstrap.servers": "b-1.demo.a1b2.c2.kafka.eu-central-1.amazonaws.com:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


async def test_a_token_is_a_signed_request_to_connect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "planted",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    token = await ClusterAccess(MSK).token()
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = parse_qs(url.query)
    assert url.hostname == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "planted" not in url.geturl()
    assert 0 < int(query["X-Amz-Expires"][0]) <= 900
    assert aiokafka_client_options(MSK)["sasl_mechanism"] == "OAUTHBEARER"


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of the signer's name, where Amazon's is not installed."""
    if has_signer():
        yield
        return
    package = tmp_path / "aws_msk_iam_sasl_signer"
    package.mkdir()
    (package / "MSKAuthTokenProvider.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in (package.name, f"{package.name}.MSKAuthTokenProvider"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("signer")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, AwsIdentity(region="eu-central-1")),
        (
            {"sasl.jaas.config": 'a.IAMLoginModule required awsProfileName="ops";'},
            AwsIdentity(region="eu-central-1", profile="ops"),
        ),
        (
            {"sasl.jaas.config": 'a.IAMLoginModule required awsRoleArn="arn:r" awsRoleSessionName="s";'},
            AwsIdentity(region="eu-central-1", role_arn="arn:r", role_session="s"),
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": "a.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": "a.IAMOAuthBearerLoginCallbackHandler",
                "sasl.client.callback.handler.class": "",
            },
            AwsIdentity(region="eu-central-1"),
        ),
    ],
)
def test_the_options_of_amazons_login_are_understood(
    change: Mapping[str, str], expected: AwsIdentity
) -> None:
    login = client_security({**MSK, **change}).sasl
    assert isinstance(login, OAuthLogin)
    assert (login.mechanism, login.aws) == ("OAUTHBEARER", expected)


@pytest.mark.usefixtures("signer")
@pytest.mark.parametrize(
    ("change", "key", "remedy"),
    [
        ({"bootstrap.servers": "kafka.example:9098"}, "bootstrap.servers", "AWS_REGION"),
        (
            {"sasl.jaas.config": 'a.IAMLoginModule required awsRoleSecretAccessKey="planted";'},
            "sasl.jaas.config",
            "profile",
        ),
    ],
)
def test_what_cannot_be_signed_is_refused(
    change: Mapping[str, str], key: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=remedy) as raised:
        client_security({**MSK, **change}, alias="A")
    assert key in str(raised.value)
    assert "planted" not in str(raised.value)
