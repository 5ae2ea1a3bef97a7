"""A KDC of a test's own: MIT Kerberos' programs on a free port of loopback, its realm in a directory.

Where they or the package `gssapi` are absent, tests that need them are skipped and say how to get them;
TWINLOG_REQUIRE_KERBEROS makes that a failure (`.ci/run` sets it).
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess

REALM = "TWINLOG.TEST"
REQUIRED = "TWINLOG_REQUIRE_KERBEROS"
NEEDS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""Where Debian keeps what administers a KDC."""


def missing() -> str:
    """What is not here, with how to get it; empty = all is."""
    absent = [name for name in NEEDS if shutil.which(name, path=SBIN) is None]
    if absent:
        return f"{', '.join(absent)} missing: apt-get install krb5-kdc krb5-admin-server krb5-user"
    if importlib.util.find_spec("gssapi") is None:
        return "gssapi missing: apt-get install libkrb5-dev gcc, then make kerberos"
    return ""


def require_kerberos() -> None:
    """Skips the test where something is missing, or fails it where it is required."""
    told = missing()
    if told and os.environ.get(REQUIRED):
        pytest.fail(told)
    if told:
        pytest.skip(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kdc:
    directory: Path

    @property
    def krb5_conf(self) -> Path:
        return self.directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    def keytab(self, *principals: str) -> Path:
        """Make principals; a file with their keys."""
        file = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {principal}")
        return file

    def log_in(self, principal: str, keytab: Path) -> None:
        """Put a ticket into the default cache of the realm."""
        self.run("kinit", "-k", "-t", str(keytab), principal)

    def run(self, *command: str) -> None:
        environment = {**os.environ, **self.environment, "PATH": SBIN}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    lease = PortLease(1)
    port = lease.ports[0]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f" default_ccache_name = FILE:{directory / 'default.cache'}\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        f"[domain_realm]\n 127.0.0.1 = {REALM}\n"
    )
    (directory / "kdc.conf").write_text(
        f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = 127.0.0.1:{port}\n'
        f"[realms]\n {REALM} = {{\n  database_name = {directory / 'principals'}\n"
        f"  key_stash_file = {directory / 'stash'}\n  acl_file = {directory / 'acl'}\n }}\n"
    )
    kdc = Kdc(directory=directory)
    kdc.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-this-test-alone")
    program = shutil.which("krb5kdc", path=SBIN)
    assert program is not None
    process = GuardedProcess(
        [program, "-n", "-r", REALM], output=directory / "kdc.log", env={**os.environ, **kdc.environment}
    )
    try:
        yield kdc
    finally:
        process.stop(10)
        lease.release()
