"""Files of certificates: the newest good ones are used, and bad ones never take the place of good ones."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from twinlog.clock import SystemClock
from twinlog.config.security import TlsFiles
from twinlog.errors import ConfigError
from twinlog.local.certificates import Authority, Signed, SigningKey
from twinlog.service.access.pem_files import PemFiles, principals_of
from twinlog.testing.virtual_time import FakeClock


def put(name: str, content: bytes) -> None:
    """As who rotates: written in place, a file of the same length may keep its time as well."""
    new = Path(f"{name}.new")
    new.write_bytes(content)
    new.replace(name)


def write(files: TlsFiles, signed: Signed) -> None:
    put(files.certificate, signed.chain)
    put(files.key, signed.key)


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    assert read.current().names == {"cn:source", "dns:source.example"}
    renewed = authority.sign("source", "other.example")
    write(files, renewed)
    assert read.current().names == {"cn:source", "dns:other.example"}
    assert read.generation == 2
    assert read.problem == ""


def test_a_half_rotated_pair_keeps_the_old_one_until_it_is_whole(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "source", "old.example")
    read = PemFiles(files)
    renewed = authority.sign("source", "new.example")
    put(files.certificate, renewed.chain)
    assert read.current().names == {"cn:source", "dns:old.example"}
    assert f"{files.key}: is not the key" in read.problem
    put(files.key, renewed.key)
    assert read.current().names == {"cn:source", "dns:new.example"}


@pytest.mark.parametrize("part", ["certificate", "key", "ca"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.97])
def test_a_half_written_file_keeps_the_old_ones(tmp_path: Path, part: str, share: float) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    before = read.current()
    name = Path(getattr(files, part))
    whole = name.read_bytes()
    name.write_bytes(whole[: int(len(whole) * share)])
    assert read.current() == before
    assert str(name) in read.problem


@pytest.mark.parametrize("part", ["certificate", "key", "ca"])
def test_a_file_that_is_gone_keeps_the_old_ones(tmp_path: Path, part: str) -> None:
    files = Authority().files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    before = read.current()
    Path(getattr(files, part)).unlink()
    assert read.current() == before
    assert "cannot be read" in read.problem


def test_an_expired_certificate_does_not_replace_a_good_one(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    write(files, authority.sign("source", "late.example", days=-1))
    assert read.current().names == {"cn:source", "dns:source.example"}
    assert "expired at" in read.problem


def test_a_certificate_that_is_not_valid_yet_waits_for_its_time(tmp_path: Path) -> None:
    authority, clock = Authority(), FakeClock(now_ms=SystemClock().now_ms())
    files = authority.files(tmp_path, "source", "source.example", days=3)
    read = PemFiles(files, clock=clock)
    write(files, authority.sign("source", "early.example", from_days=1, days=3))
    assert read.current().names == {"cn:source", "dns:source.example"}
    assert "is not valid before" in read.problem
    clock.advance(2 * 86_400)
    assert read.current().names == {"cn:source", "dns:early.example"}


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP521R1()),
        ec.generate_private_key(ec.SECP256K1()),
    ],
    ids=["Ed25519", "P-521", "secp256k1"],
)
def test_a_key_that_grpc_refuses_does_not_replace_a_good_one(tmp_path: Path, key: SigningKey) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    write(files, authority.sign("source", "other.example", key=key))
    assert read.current().names == {"cn:source", "dns:source.example"}
    assert "RSA and of the curves P-256 and P-384" in read.problem


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())],
    ids=["RSA", "P-384"],
)
def test_keys_that_grpc_accepts_are_used(tmp_path: Path, key: SigningKey) -> None:
    authority = Authority()
    files = authority.files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    write(files, authority.sign("source", "other.example", key=key))
    assert read.current().names == {"cn:source", "dns:other.example"}


def test_a_certificate_that_cannot_be_read_whole_keeps_the_old_one(tmp_path: Path) -> None:
    """Its frame is right, an extension is not: alternative names that are no list of names."""
    authority = Authority()
    files = authority.files(tmp_path, "source", "source.example")
    read = PemFiles(files)
    before = read.current()
    write(files, authority.sign("source", "other.example", raw_names=b"\x04\x01\xff"))
    assert read.current() == before
    assert f"{files.certificate}: holds a certificate that cannot be read" in read.problem


def test_a_caller_whose_certificate_has_unreadable_names_has_its_common_name() -> None:
    signed = Authority().sign("source", raw_names=b"\x04\x01\xff")
    assert principals_of(x509.load_pem_x509_certificate(signed.chain)) == ("cn:source",)


def test_at_the_start_a_bad_file_is_refused_by_its_name(tmp_path: Path) -> None:
    files = Authority().files(tmp_path, "source", "source.example", days=-1)
    with pytest.raises(ConfigError, match=r"source\.pem: the certificate expired at .*: renew it") as refused:
        PemFiles(files)
    assert refused.value.reason == "CERTIFICATE_UNUSABLE"


def test_no_key_is_in_what_a_log_could_show(tmp_path: Path) -> None:
    files = Authority().files(tmp_path, "source", "source.example")
    pem = PemFiles(files).current()
    assert "PRIVATE" not in repr(pem)
