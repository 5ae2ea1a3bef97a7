"""When the certificate ends with which a process logs in to a cluster."""

from pathlib import Path

from twinlog.clock import SystemClock
from twinlog.local.certificates import Authority
from twinlog.service.credentials import READ_SECONDS, LoginCertificates
from twinlog.telemetry.metrics.spec import CLUSTER
from twinlog.testing.virtual_time import FakeClock

DAY_SECONDS = 86_400


def store(file: Path, *, days: float) -> None:
    signed = Authority().sign("client", days=days)
    file.write_bytes(signed.key + signed.chain)


def days_left(certificates: LoginCertificates) -> dict[str, float]:
    return {
        str((each.attributes or {})[CLUSTER]): round(float(each.value) / DAY_SECONDS)
        for each in certificates.expiries()
    }


def test_the_end_of_each_clusters_certificate_is_shown_and_a_new_one_is_seen(tmp_path: Path) -> None:
    clock = FakeClock(now_ms=SystemClock().now_ms())
    file = tmp_path / "client.pem"
    store(file, days=5)
    with_certificate = {"security.protocol": "SSL", "ssl.keystore.location": str(file)}
    certificates = LoginCertificates(
        {
            "A": with_certificate | {"ssl.keystore.type": "PEM"},
            "B": {"security.protocol": "PLAINTEXT"},
            "C": {"security.protocol": "SSL"},
        },
        clock=clock,
    )
    assert days_left(certificates) == {"A": 5}
    assert [round(float(each.value) / DAY_SECONDS) for each in certificates.lifetimes()] == [5 + 9]
    store(file, days=8)
    assert days_left(certificates) == {"A": 5}
    clock.advance(READ_SECONDS)
    assert days_left(certificates) == {"A": 8}
    file.write_text("half")
    clock.advance(READ_SECONDS)
    assert days_left(certificates) == {"A": 8}
