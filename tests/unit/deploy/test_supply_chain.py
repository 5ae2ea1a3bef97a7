"""Locks, bills of materials, advisories and base images: what docs/supply-chain.md promises."""

import json
import re
import zipfile
from pathlib import Path

import pytest
from deploy.supply import audit, images, sbom
from deploy.supply.locks import FOLDER, PYTHON, fingerprint, made_from, read, wanted
from deploy.supply.sbom import jars_in
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from unit.deploy.compose_files import recipe
from unit.deploy.wheels import PROJECT

LOCKS = sorted(path.name for path in FOLDER.glob("*.txt") if path != audit.ACCEPTED)
DIGEST = "sha256:" + "ab" * 32

each_lock = pytest.mark.parametrize("name", LOCKS)
each_image = pytest.mark.parametrize("image", list(sbom.IMAGES))


def site_of(lock: str, directory: Path) -> Path:
    """Installed packages as an image has them, without their modules."""
    for each in read(FOLDER / lock):
        if each.marker and not Marker(each.marker).evaluate():
            continue
        info = directory / f"{each.name.replace('-', '_')}-{each.version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {each.name}\nVersion: {each.version}\nLicense: MIT\n"
        )
    return directory


def jar(path: Path, *, properties: str = "", manifest: str = "Manifest-Version: 1.0\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", manifest)
        if properties:
            archive.writestr("META-INF/maven/org.example/thing/pom.properties", properties)


def test_there_is_a_lock_for_each_purpose() -> None:
    others = {"build.txt", "dev.txt", "java.txt", "kerberos.txt"}
    assert set(LOCKS) == set(wanted()) == {*sbom.IMAGES.values(), *others}


@each_lock
def test_a_lock_is_that_of_the_present_dependencies(name: str) -> None:
    assert made_from(FOLDER / name) == fingerprint(wanted()[name]), f"{name} is out of date: make lock"


@each_lock
def test_every_locked_package_has_hashes_and_fits_what_was_asked_for(name: str) -> None:
    locked = read(FOLDER / name)
    assert all(each.hashes for each in locked)
    versions = {each.name: each.version for each in locked}
    for requirement in map(Requirement, wanted()[name]):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)], prereleases=True)


@each_lock
def test_a_lock_names_no_registry_and_no_directory(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert "://" not in text
    assert not re.search(r"^(-i|-f|--index|--extra-index|--find-links|--trusted)", text, re.MULTILINE)


def test_ci_tests_the_versions_that_the_images_hold() -> None:
    tested = {each.name: each.version for each in read(FOLDER / "dev.txt")}
    for lock in set(sbom.IMAGES.values()):
        assert {each.name: each.version for each in read(FOLDER / lock)}.items() <= tested.items()


def test_a_line_that_is_no_pinned_package_is_no_lock(tmp_path: Path) -> None:
    lock = tmp_path / "some.txt"
    lock.write_text("aiokafka>=0.14\n")
    with pytest.raises(ValueError, match=r"some.txt:1: 'aiokafka>=0.14' is no package"):
        read(lock)


@each_image
def test_an_image_installs_nothing_but_locked_files_and_our_own(image: str) -> None:
    commands = re.findall(r"pip (?:--python \S+ )?(install|wheel) ([^\n&]+)", recipe(image))
    assert commands
    for command, options in commands:
        locked = "--require-hashes -r /requirements/" in options or re.search(
            r"--require-hashes --wheel-dir /wheels -r /requirements/", options
        )
        built_here = command == "install" and "--no-index --no-deps" in options
        ours = (
            command == "wheel"
            and "--no-build-isolation --no-deps" in options
            and re.search(r" \$\w+ +$", options)
        )
        assert locked or built_here or ours, options
        # Without it pip downloads what builds a wheel, at whatever version there is.
        assert command == "install" or "--no-build-isolation" in options, options


@each_image
def test_an_image_stands_on_a_base_that_can_be_given_by_digest(image: str) -> None:
    text = recipe(image)
    known = images.base_images(images.FILE.read_text())
    assert dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", text, re.MULTILINE)) == {
        name: reference.partition("@")[0] for name, reference in known.items()
    }
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert base in stages or base.strip("${}") in known, base


@each_image
def test_an_image_carries_its_bill_of_materials_and_notices(image: str) -> None:
    text = recipe(image)
    assert f"LOCK={sbom.IMAGES[image]}\n" in text
    assert "-r /requirements/$LOCK " in text
    assert 'python3 -m deploy.supply.sbom "$IMAGE" ' in text
    assert re.search(r"cp LICENSE NOTICE /opt/\w+/share/twinlog/", text)


def test_a_bill_of_materials_lists_every_locked_package_and_our_own(tmp_path: Path) -> None:
    found = sbom.components("twinlog-checkpoint", site_of("library.txt", tmp_path))
    names = {each["name"] for each in found}
    assert {"twinlog-checkpoint", "twinlog-service", "twinlog-core", "aiokafka", "grpcio"} <= names
    assert not names & {"twinlog", "twinlog-source", "pyspark"}
    kafka = next(each for each in found if each["name"] == "aiokafka")
    locked = next(each for each in read(FOLDER / "library.txt") if each.name == "aiokafka")
    assert kafka["purl"] == f"pkg:pypi/aiokafka@{locked.version}"
    assert kafka["licenses"] == [{"expression": "MIT"}]
    assert {each["value"] for each in kafka["properties"]} == set(locked.hashes)


def test_a_bill_of_materials_lists_sparks_jars(tmp_path: Path) -> None:
    site = site_of("source.txt", tmp_path)
    jar(
        site / "pyspark/jars/thing-1.2.jar",
        properties="groupId=org.example\nartifactId=thing\nversion=1.2\n",
        manifest="Manifest-Version: 1.0\nBundle-License: https://apache.org/licenses/LICENSE-2.0.\n txt\n",
    )
    jar(
        site / "pyspark/jars/shaded-0.9.jar",
        properties="groupId=org.example\nartifactId=thing\nversion=1.2\n",
    )
    thing = next(each for each in sbom.components("twinlog-source", site) if each["name"] == "thing")
    assert thing["purl"] == "pkg:maven/org.example/thing@1.2"
    assert thing["licenses"] == [{"expression": "Apache-2.0"}]
    shaded = next(each for each in jars_in(site / "pyspark/jars") if each.name == "shaded")
    assert (shaded.purl, shaded.version) == ("pkg:generic/shaded@0.9", "0.9")


def test_a_bill_of_materials_is_the_same_each_time(tmp_path: Path) -> None:
    documents = [
        sbom.document("twinlog", sbom.components("twinlog", site_of("twinlog.txt", tmp_path / part)))
        for part in ("first", "second")
    ]
    assert json.dumps(documents[0]) == json.dumps(documents[1])
    references = [each["bom-ref"] for each in documents[0]["components"]]
    assert len(references) == len(set(references))


def test_a_bill_of_materials_is_not_written_of_other_versions(tmp_path: Path) -> None:
    with pytest.raises(sbom.NotInstalledError, match="aiokafka"):
        sbom.components("twinlog-checkpoint", tmp_path)


REPORT = {
    "dependencies": [
        {"name": "one", "version": "1.0", "vulns": []},
        {
            "name": "two",
            "version": "2.0",
            "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-9"], "fix_versions": ["2.1"]}],
        },
    ]
}


def test_an_advisory_fails_the_audit_and_names_the_remedy() -> None:
    verdict = audit.judge(json.dumps(REPORT), "", ())
    assert verdict.failed
    assert verdict.lines[0] == "FINDING: two 2.0: PYSEC-1 (fixed in 2.1)"


@pytest.mark.parametrize("by", ["PYSEC-1", "CVE-9"])
def test_an_accepted_advisory_does_not_fail_the_audit(by: str) -> None:
    assert not audit.judge(json.dumps(REPORT), "", (by,)).failed


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        ("", "ERROR: connection refused"),
        ('{"dependencies": [{"name": "one", "skip_reason": "connection refused"}]}', ""),
    ],
)
def test_an_audit_that_cannot_ask_is_skipped_with_its_reason(report: str, complaint: str) -> None:
    verdict = audit.judge(report, complaint, ())
    assert not verdict.failed
    assert audit.judge(report, complaint, (), required=True).failed
    assert verdict.lines[0].startswith("SKIPPED: ")
    assert "connection refused" in verdict.lines[0]


def test_an_advisory_is_accepted_with_a_reason_only(tmp_path: Path) -> None:
    assert all(audit.accepted(audit.ACCEPTED).values())
    file = tmp_path / "accepted.txt"
    file.write_text("# why\nPYSEC-1\n")
    with pytest.raises(ValueError, match="PYSEC-1 is accepted without a reason"):
        audit.accepted(file)


def test_a_tag_gets_the_digest_that_the_registry_names() -> None:
    once = images.pinned("# why\nPYTHON_IMAGE=python:3.11-slim\n", {"python:3.11-slim": DIGEST})
    assert once == f"# why\nPYTHON_IMAGE=python:3.11-slim@{DIGEST}\n"
    assert images.unpinned(once) == []
    newer = images.pinned(once, {"python:3.11-slim": "sha256:" + "cd" * 32})
    assert images.base_images(newer) == {"PYTHON_IMAGE": "python:3.11-slim@sha256:" + "cd" * 32}


@pytest.mark.parametrize("path", [images.FILE, *images.COMPOSE], ids=lambda path: path.name)
def test_every_image_of_others_is_named_by_digest(path: Path) -> None:
    assert images.unpinned(path.read_text()) == []


def test_an_image_in_a_compose_file_gets_its_digest_and_ours_stay() -> None:
    text = "x:\n  image: some/thing:1.2\ny:\n  image: twinlog:${TWINLOG_VERSION:-0.1.0}\n"
    assert images.tags(text) == {"some/thing:1.2"}
    assert images.unpinned(text) == ["some/thing:1.2"]
    assert images.pinned(text, {"some/thing:1.2": DIGEST}) == text.replace("1.2", f"1.2@{DIGEST}")


def test_an_image_is_built_on_the_digest_with_the_time_of_the_commit() -> None:
    command = images.build_command("twinlog-source", {"PYTHON_IMAGE": f"python@{DIGEST}"}, 1_700_000_000)
    assert command[:4] == ["docker", "build", "--file", "deploy/Dockerfile"]
    assert "IMAGE=twinlog-source" in command
    assert f"PYTHON_IMAGE=python@{DIGEST}" in command
    assert "SOURCE_DATE_EPOCH=1700000000" in command


def test_the_locks_hold_for_every_python_that_twinlog_runs_on() -> None:
    asked = re.search(r'requires-python = "(.+)"', (PROJECT / "pyproject.toml").read_text())
    assert asked is not None
    assert SpecifierSet(asked.group(1)).contains(PYTHON)
