"""Spark's jars: which artifacts of Maven they are."""

import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FILE: Final = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)\.jar")
_POM: Final = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_LICENCES: Final = {
    "apache.org/licenses/license-2.0": "Apache-2.0",
    "opensource.org/licenses/mit": "MIT",
    "opensource.org/license/mit": "MIT",
    "eclipse.org/legal/epl-2.0": "EPL-2.0",
    "eclipse.org/legal/epl-v20": "EPL-2.0",
    "eclipse.org/org/documents/edl-v10": "BSD-3-Clause",
    "opensource.org/licenses/bsd-3-clause": "BSD-3-Clause",
    "opensource.org/licenses/bsd-license": "BSD-3-Clause",
}


@dataclass(frozen=True, kw_only=True)
class Jar:
    file: str
    group: str
    """Empty when the jar does not say."""
    name: str
    version: str
    licence: str
    """Empty when the jar does not say: Spark's LICENSE does."""
    sha256: str

    @property
    def purl(self) -> str:
        return (
            f"pkg:maven/{self.group}/{self.name}@{self.version}"
            if self.group
            else (f"pkg:generic/{self.name}@{self.version}")
        )


def jars_in(directory: Path) -> Iterator[Jar]:
    for path in sorted(directory.glob("*.jar")):
        yield _jar(path)


def _jar(path: Path) -> Jar:
    match = _FILE.fullmatch(path.name)
    name, version = match.group("name", "version") if match else (path.stem, "0")
    group = ""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if _POM.fullmatch(entry):
                said = dict(
                    line.split("=", 1) for line in archive.read(entry).decode().splitlines() if "=" in line
                )
                # A jar that contains others has their descriptions, too.
                if said.get("artifactId") == name:
                    group, version = said["groupId"].strip(), said["version"].strip()
        licence = _licence(archive)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Jar(file=path.name, group=group, name=name, version=version, licence=licence, sha256=digest)


def _licence(archive: zipfile.ZipFile) -> str:
    """As the jar's manifest says it."""
    try:
        manifest = archive.read("META-INF/MANIFEST.MF").decode(errors="replace")
    except KeyError:
        return ""
    unfolded = manifest.replace("\r\n", "\n").replace("\n ", "")
    for line in unfolded.splitlines():
        if line.startswith("Bundle-License:"):
            said = line.partition(":")[2].lower()
            found = {
                known for address, known in _LICENCES.items() if address in said or known.lower() in said
            }
            return " OR ".join(sorted(found))
    return ""
