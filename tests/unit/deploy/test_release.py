"""What `make release` says of a release, and the forge's workflows, which run what developers run."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.supply.images import build_command
from deploy.supply.release import COMMAND_VARIABLE, checksums, notes, one_version

from unit.deploy.wheels import PROJECT

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.1.0] - 2026-11-29\n\n- first\n- second\n"


@pytest.mark.parametrize(("version", "told"), [("0.1.0", "- first\n- second"), ("0.2.0", "- new")])
def test_the_notes_are_the_versions_part_of_the_changelog(version: str, told: str) -> None:
    assert notes(CHANGELOG, version) == f"# Twinlog {version}\n\n{told}\n"


def test_parts_of_different_versions_are_no_release() -> None:
    assert one_version({"twinlog": "0.1.0", "the chart": "0.1.0"}) == "0.1.0"
    with pytest.raises(SystemExit, match=r"the chart 0\.2\.0"):
        one_version({"twinlog": "0.1.0", "the chart": "0.2.0"})


def test_checksums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    files = {"b.whl": b"two", "a.whl": b"one"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "SHA256SUMS").write_text(checksums(files))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_images_for_a_registry_are_of_every_platform() -> None:
    command = build_command("twinlog-source", {}, 1, "registry.example/team")
    assert command[:6] == ["docker", "buildx", "build", "--platform", "linux/amd64,linux/arm64", "--push"]
    assert any(word.startswith("registry.example/team/twinlog-source:") for word in command)


def test_the_test_of_the_wheels_starts_the_command_that_the_release_names() -> None:
    assert COMMAND_VARIABLE in (PROJECT / "tests/e2e/test_start.py").read_text()


def test_a_release_finds_the_helm_that_ci_built(tmp_path: Path) -> None:
    helm, python = tmp_path / "twinlog" / "tools" / "helm", tmp_path / "python"
    helm.parent.mkdir(parents=True)
    for program, does in ((helm, "true"), (python, "command -v helm")):
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    command = ["make", "--silent", "--old-file", "install", "release", f"BIN={tmp_path}"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    made = subprocess.run(command, cwd=PROJECT, env=environment, check=False, capture_output=True, text=True)
    assert made.stdout.strip() == str(helm), made.stderr


def _workflow(name: str) -> Any:
    return yaml.safe_load((PROJECT / ".github/workflows" / name).read_text())["jobs"]


def test_the_forge_runs_what_ci_runs_on_each_python() -> None:
    job = _workflow("ci.yaml")["ci"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    steps = _workflow("release.yaml")["release"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make audit release"]
    tools = {step["uses"].partition("@")[0] for step in steps if "uses" in step}
    assert tools >= {"azure/setup-helm", "sigstore/cosign-installer"}, "it packs the chart, and signs"
