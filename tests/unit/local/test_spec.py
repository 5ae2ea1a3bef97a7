"""Which clusters may be asked for."""

from dataclasses import asdict
from json import dumps, loads
from typing import Any

import pytest

from twinlog.errors import ConfigError
from twinlog.local.owner import spec_from_json
from twinlog.local.spec import ClusterSpec, FarListener, KafkaVersion, SaslMechanism, Security


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"broker_count": 2}, "1 or 3 brokers, not 2"),
        ({"name": "../etc"}, r"letters, digits, dots, dashes and underscores only: '../etc'"),
        ({"name": ""}, "letters, digits"),
        ({"broker_count": 3, "far": FarListener(port=1, advertised_port=2)}, "only a cluster of one broker"),
    ],
)
def test_wrong_cluster_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusterSpec(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"client_certificates": True}, "need tls=True"),
        ({"authorizer": True}, "clients must have names"),
        ({"users": {"alice": "x"}}, "must be able to log in"),
        ({"mechanisms": (SaslMechanism.PLAIN,), "users": {"super": "x"}}, "'super' is the super user"),
        ({"mechanisms": (SaslMechanism.PLAIN,), "users": {'a"b': "x"}}, "a user's name has letters"),
    ],
)
def test_wrong_security_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Security(**wrong)


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (Security(), "PLAINTEXT"),
        (Security(tls=True), "SSL"),
        (Security(mechanisms=(SaslMechanism.PLAIN,)), "SASL_PLAINTEXT"),
        (Security(tls=True, mechanisms=(SaslMechanism.SCRAM_SHA_256,)), "SASL_SSL"),
    ],
)
def test_protocol_follows_from_tls_and_sasl(security: Security, protocol: str) -> None:
    assert security.protocol == protocol


def test_passwords_are_not_shown() -> None:
    security = Security(
        mechanisms=(SaslMechanism.PLAIN,), users={"alice": "hush-hush"}, super_password="top-secret"
    )
    shown = repr(ClusterSpec(security=security))
    assert "hush-hush" not in shown
    assert "top-secret" not in shown


def test_scram_users_need_a_release_that_can_format_with_them() -> None:
    security = Security(mechanisms=(SaslMechanism.SCRAM_SHA_256,))
    with pytest.raises(ConfigError, match=r"SCRAM users need Kafka 3\.5 or newer, not 3\.3\.2"):
        ClusterSpec(version=KafkaVersion.V3_3, security=security)


def test_spec_reaches_a_detached_owner_unchanged() -> None:
    spec = ClusterSpec(
        name="C",
        broker_count=3,
        version=KafkaVersion.V3_9,
        security=Security(tls=True, mechanisms=(SaslMechanism.SCRAM_SHA_512,), users={"alice": "x"}),
        properties={"log.segment.bytes": "1048576"},
        first_port=9092,
    )
    assert spec_from_json(loads(dumps(asdict(spec)))) == spec
