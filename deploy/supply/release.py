"""`make release`: what a maintainer publishes, in dist/release, tried without this tree.

Wheels, chart, bills of materials, notes, checksums. Then `pip install twinlog` from these wheels alone, in
an environment of its own, and a first flow between two real clusters. docs/release.md says what to publish.
"""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml
from deploy.supply import sbom
from deploy.supply.images import epoch
from deploy.supply.projects import ROOT, projects

from twinlog.machine import find_java

OUTPUT: Final = ROOT / "dist" / "release"
CHART: Final = ROOT / "deploy" / "kubernetes" / "chart"
COMMAND_VARIABLE: Final = "TWINLOG_TESTS_COMMAND"
"""The `twinlog` that tests/e2e/test_start.py starts."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--uncommitted", action="store_true", help="of a tree that is not committed")
    parser.add_argument("--key", metavar="FILE", help="sign with this key of cosign, not by a login")
    options = parser.parse_args(arguments)
    if not options.uncommitted and _run("git", "status", "--porcelain"):
        sys.exit("the tree has changes that are not committed: commit them, or ARGS=--uncommitted")
    version = one_version({name: each.version for name, each in projects().items()} | _of_chart())
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    (OUTPUT / "NOTES.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(), version))
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(OUTPUT))
    _run(sys.executable, *build, *(str(each.directory) for each in projects().values()))
    _run("helm", "package", str(CHART), "--destination", str(OUTPUT))
    sbom.main(["--output", str(OUTPUT), *sbom.IMAGES])
    _try(version)
    sums = OUTPUT / "SHA256SUMS"
    sums.write_text(checksums({each.name: each.read_bytes() for each in OUTPUT.iterdir()}))
    command = signing(str(sums), options.key)
    if shutil.which("cosign"):
        # In this terminal: it asks for the login, or for the key's password.
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"{sums} is not signed")
    else:
        print(f"not signed, there is no cosign here. Where there is: {shlex.join(command)}")  # noqa: T201
    print(f"{version} is in {OUTPUT}: {len(list(OUTPUT.iterdir()))} files")  # noqa: T201
    return 0


def one_version(told: Mapping[str, str]) -> str:
    """The version that all say. Exits, naming them, where they differ."""
    if len(set(told.values())) != 1:
        sys.exit("not one release: " + ", ".join(f"{name} {version}" for name, version in told.items()))
    return next(iter(told.values()))


def notes(changelog: str, version: str) -> str:
    """The version's part of the changelog, or what is not released yet.

    >>> notes("# Changelog\\n\\n## [Unreleased]\\n\\n- new\\n\\n## [0.1.0]\\n\\n- first\\n", "0.1.0")
    '# Twinlog 0.1.0\\n\\n- first\\n'
    """
    parts: dict[str, str] = dict(
        re.findall(r"^## \[([^]]+)\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    )
    return f"# Twinlog {version}\n\n{parts.get(version, parts.get('Unreleased', '')).strip()}\n"


def signing(file: str, key: str | None) -> list[str]:
    """The command that signs a file: by a login, which a public log records, or by a key without one.

    >>> signing("SUMS", "my.key")[-4:]
    ['--key', 'my.key', '--tlog-upload=false', 'SUMS']
    """
    by_key = ["--key", key, "--tlog-upload=false"] if key else []
    return ["cosign", "sign-blob", "--yes", "--bundle", f"{file}.sigstore.json", *by_key, file]


def checksums(files: Mapping[str, bytes]) -> str:
    """As `sha256sum --check` reads them."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))


def _of_chart() -> dict[str, str]:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return {"the chart": chart["version"], "the chart's images": chart["appVersion"]}


def _try(version: str) -> None:
    """Install the wheels where there is nothing else, and copy a first record."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python, command = f"{directory}/bin/python", f"{directory}/bin/twinlog"
        wheels = ("--find-links", str(OUTPUT), f"twinlog=={version}")
        _run(python, "-m", "pip", "install", "--quiet", *wheels, cwd=directory)
        _run(python, "-m", "pip", "check", cwd=directory)
        found = _run(python, "-c", "import twinlog, twinlog_source; print(twinlog.__file__)", cwd=directory)
        assert found.startswith(directory), found
        os.environ |= {COMMAND_VARIABLE: command, "JAVA_HOME": str(find_java().java_home)}
        _run(sys.executable, "-m", "pytest", "-q", "tests/e2e/test_start.py")


def _run(*command: str, cwd: str | Path = ROOT) -> str:
    """What it printed. Exits with its complaint where it fails or is absent."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(epoch()))
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed here; .ci/run says from where")
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
