"""`.ci/run` installs what tests need where it may, and then a test that is skipped fails."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from unit.deploy.wheels import PROJECT

PROMETHEUS, CHROMIUM = "TWINLOG_REQUIRE_PROMETHEUS=1", "TWINLOG_REQUIRE_CHROMIUM=1"
KERBEROS = "TWINLOG_REQUIRE_KERBEROS=1"
MAKE = """echo "make $1"
for each in PROMETHEUS CHROMIUM KERBEROS; do name=TWINLOG_REQUIRE_$each; echo "$name=${!name}"; done"""
APT = """[ "$1" = install ] || exit 0
for package in "$@"; do
  case "$package" in
    prometheus) programs="prometheus promtool";;
    chromium|gcc) programs="$package";;
    libkrb5-dev) programs=krb5-config;;
    krb5-kdc) programs="krb5kdc kadmin.local";;
    krb5-user) programs=kinit;;
    *) programs=;;
  esac
  for each in $programs; do ln -s "$0" "${0%/*}/$each"; echo "installed $package"; done
done"""
KDC = dict.fromkeys(("gcc", "krb5-config", "kinit", "kadmin.local", "krb5kdc"), "")


def said(directory: Path, *, user: int, **programs: str) -> list[str]:
    """What it prints on a machine that has nothing but these programs."""
    bash = shutil.which("bash")
    assert bash is not None
    for name in ("dirname", "env", "ln", "true"):
        (directory / name).symlink_to(shutil.which(name) or "")
    for name, text in {"make": MAKE, "id": f"echo {user}", **programs}.items():
        program = directory / name
        program.write_text(f"#!{bash}\n{text}\n")
        program.chmod(0o755)
    others = {name: value for name, value in os.environ.items() if not name.startswith("TWINLOG_REQUIRE")}
    done = subprocess.run(
        [bash, PROJECT / ".ci/run"],
        env={**others, "PATH": str(directory)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_targets_of_a_developer_are_run(tmp_path: Path) -> None:
    made = [line for line in said(tmp_path, user=0) if line.startswith("make")]
    assert (made[0], sorted(made[1:])) == ("make install", ["make ci", "make lint"])


def test_a_lint_that_fails_beside_the_tests_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        said(tmp_path, user=0, make="[ $1 != lint ]")
    assert "make lint failed" in failed.value.stderr


@pytest.mark.parametrize(
    ("user", "more"), [(0, {}), (1000, {"sudo": '[ "$1" = -n ] && shift; exec "$@"'})], ids=["root", "sudo"]
)
def test_what_may_be_installed_is_installed_and_required(
    tmp_path: Path, user: int, more: dict[str, str]
) -> None:
    lines = said(tmp_path, user=user, **{"apt-get": APT}, **more)
    assert {"installed prometheus", "installed chromium", PROMETHEUS, CHROMIUM} <= set(lines)
    assert {"installed gcc", "installed libkrb5-dev", "installed krb5-kdc", KERBEROS} <= set(lines)
    assert "make kerberos" in lines


@pytest.mark.parametrize(
    ("user", "programs"),
    [(0, {}), (1000, {"apt-get": APT}), (1000, {"apt-get": APT, "sudo": "exit 1"})],
    ids=["no packages", "no rights", "sudo asks for a password"],
)
def test_what_may_not_be_installed_is_not_required(
    tmp_path: Path, user: int, programs: dict[str, str]
) -> None:
    lines = said(tmp_path, user=user, **programs)
    assert not {PROMETHEUS, CHROMIUM, KERBEROS} & set(lines)
    assert "make ci" in lines


def test_a_mirror_that_fails_ends_nothing(tmp_path: Path) -> None:
    lines = said(tmp_path, user=0, **{"apt-get": "exit 100"})
    assert not {PROMETHEUS, CHROMIUM, KERBEROS} & set(lines)
    assert "make ci" in lines


@pytest.mark.parametrize("browser", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_by_any_of_its_names_is_required(tmp_path: Path, browser: str) -> None:
    lines = said(tmp_path, user=1000, **{browser: "", "prometheus": "", "promtool": ""})
    assert {PROMETHEUS, CHROMIUM} <= set(lines)


def test_kerberos_is_required_where_its_package_can_be_built(tmp_path: Path) -> None:
    assert KERBEROS in said(tmp_path, user=1000, **KDC)


def test_kerberos_is_not_required_where_its_package_cannot_be_built(tmp_path: Path) -> None:
    lines = said(tmp_path, user=1000, **{**KDC, "make": f"{MAKE}\n[ $1 != kerberos ]"})
    assert KERBEROS not in lines
    assert "make ci" in lines


def test_kerberos_is_not_required_without_a_compiler(tmp_path: Path) -> None:
    lines = said(tmp_path, user=1000, **{name: "" for name in KDC if name != "gcc"})
    assert KERBEROS not in lines
    assert "make kerberos" not in lines
