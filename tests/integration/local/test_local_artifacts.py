"""Fetching with the real Ivy, from a Maven repository on disk."""

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.errors import ConfigError
from twinlog.local.download.artifacts import (
    ArtifactsDamagedError,
    ArtifactSet,
    Jars,
    ensure_jars,
    jar_hashes,
    verify_jars,
)
from twinlog.local.download.ivy import SETTINGS_VARIABLE, Coordinate, FetchError

_SETTINGS = """<ivysettings>
  <settings defaultResolver="disk"/>
  <resolvers>
    <ibiblio name="disk" m2compatible="true" root="{root}" checksums=""/>
  </resolvers>
</ivysettings>
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>example</groupId><artifactId>{name}</artifactId><version>1</version></dependency>"
)

_SET = ArtifactSet(name="tried", coordinates=(Coordinate("example", "upper", "1"),))


def _publish(repository: Path, name: str, *needs: str) -> None:
    directory = repository / "example" / name / "1"
    directory.mkdir(parents=True)
    dependencies = "".join(_DEPENDENCY.format(name=need) for need in needs)
    (directory / f"{name}-1.pom").write_text(_POM.format(name=name, dependencies=dependencies))
    with zipfile.ZipFile(directory / f"{name}-1.jar", "w") as jar:
        jar.writestr("what.txt", name)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a repository with `upper`, which needs `lower`."""
    root = tmp_path / "repository"
    _publish(root, "upper", "lower")
    _publish(root, "lower")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(_SETTINGS.format(root=root.as_uri()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    return root


def _ensure(said: list[str]) -> Jars:
    return ensure_jars(_SET, say=said.append)


def test_set_comes_with_all_it_needs_and_only_once(repository: Path) -> None:
    said: list[str] = []
    jars = _ensure(said)
    assert sorted(jar.name for jar in jars.directory.glob("*.jar")) == ["lower-1.jar", "upper-1.jar"]
    assert jars.class_path == f"{jars.directory}/lower-1.jar:{jars.directory}/upper-1.jar"
    assert verify_jars(_SET) == 2
    assert _ensure(said) == jars
    assert said.count("fetched tried") == 1


def test_what_is_missing_or_cut_short_is_fetched_again(repository: Path) -> None:
    said: list[str] = []
    jars = _ensure(said)
    (jars.directory / "lower-1.jar").unlink()
    _ensure(said)
    (jars.directory / "upper-1.jar").write_bytes(b"PK")
    _ensure(said)
    (jars.directory / "manifest.json").write_text("{")
    _ensure(said)
    assert said.count("fetched tried") == 4
    assert verify_jars(_SET) == 2


def test_verify_names_the_jar_whose_content_changed(repository: Path) -> None:
    jars = _ensure([])
    jar = jars.directory / "lower-1.jar"
    content = bytearray(jar.read_bytes())
    content[-1] ^= 1
    jar.write_bytes(content)
    with pytest.raises(ArtifactsDamagedError, match=r"damaged \(lower-1\.jar\)"):
        verify_jars(_SET)


def test_what_is_not_what_was_recorded_is_not_taken(repository: Path) -> None:
    jars = _ensure([])
    hashes = jar_hashes(jars.directory)
    shutil.rmtree(jars.directory)
    assert ensure_jars(replace(_SET, sha256=hashes)) == jars
    shutil.rmtree(jars.directory)
    for sha256 in (
        hashes | {"lower-1.jar": "0" * 64},
        hashes | {"third-1.jar": "0" * 64},
        {"upper-1.jar": hashes["upper-1.jar"]},
    ):
        with pytest.raises(ArtifactsDamagedError, match="checksums of downloaded files do not match"):
            ensure_jars(replace(_SET, sha256=sha256))
    with pytest.raises(ArtifactsDamagedError, match="no manifest"):
        verify_jars(_SET)


def test_what_cannot_be_fetched_is_named_with_a_remedy(repository: Path) -> None:
    (repository / "example" / "lower" / "1" / "lower-1.jar").unlink()
    with pytest.raises(
        FetchError, match=rf"cannot fetch tried(.|\n)*example#lower;1(.|\n)*{SETTINGS_VARIABLE}"
    ):
        _ensure([])
    with pytest.raises(ArtifactsDamagedError, match="no manifest"):
        verify_jars(_SET)


def test_settings_file_that_is_not_there_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS_VARIABLE, "nowhere.xml")
    with pytest.raises(ConfigError, match=f"{SETTINGS_VARIABLE} names nowhere.xml"):
        _ensure([])
