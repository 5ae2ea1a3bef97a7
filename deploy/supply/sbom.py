"""`make sbom`: what an image is made of, as CycloneDX 1.6 and as a list of licences.

The lock says which packages and with which hashes; the installed packages say their licences; Spark's jars
are listed one by one. Two runs on the same commit write the same bytes. Standard library only, but for
`packaging`: the build of an image runs it, too.
"""

import argparse
import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageMetadata, PathDistribution, distributions
from pathlib import Path
from typing import Any, Final

from deploy.supply.locks import FOLDER, Locked, read
from deploy.supply.projects import SERVICES, Project, canonical, ours_in, projects
from packaging.markers import Marker

# Spark's jars: which artifacts of Maven they are.

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


# The licence of an installed package as an SPDX expression.

_BY_CLASSIFIER: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_BY_WORDS: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
}
_IDS: Final = frozenset({"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "PSF-2.0"})


def licence_of(metadata: PackageMetadata) -> str:
    """Its own expression, else what its older fields mean; empty when nothing is said."""
    fields = metadata.json
    if expression := fields.get("license_expression"):
        return str(expression)
    words = str(fields.get("license", "")).strip()
    if words in _IDS:
        return words
    classified = {
        _BY_CLASSIFIER[name]
        for classifier in metadata.get_all("Classifier") or ()
        if (name := classifier.rpartition(" :: ")[2]) in _BY_CLASSIFIER
    }
    return " OR ".join(sorted(classified)) or _BY_WORDS.get(words.lower(), "")


IMAGES: Final = {
    "twinlog": "twinlog.txt",
    "twinlog-all": "all.txt",
    "twinlog-checkpoint": "library.txt",
    "twinlog-configsync": "library.txt",
    "twinlog-heartbeat": "library.txt",
    "twinlog-source": "source.txt",
}
"""Each image and its lock."""
ALSO_HOLDS: Final = {"twinlog": ("twinlog-source",)}
"""What an image holds beside its own distribution and its needs: `twinlog verify` reads logs with it."""
VERSION: Final = projects()["twinlog"].version
"""Of every image."""
_NAMESPACE: Final = uuid.UUID("2c1c9ab4-5f0e-5b52-9c53-5f0a4f0f7a11")


class NotInstalledError(Exception):
    """A locked package is not installed here at its version: run `make install`."""


def components(image: str, site: Path) -> list[dict[str, Any]]:
    """The components of an image, sorted. `site` is where its packages are installed. Raises
    NotInstalledError."""
    installed = {canonical(each.metadata["Name"]): each for each in distributions(path=[str(site)])}
    found = [_of_ours(project) for project in ours_in_image(image)]
    for locked in read(FOLDER / IMAGES[image]):
        if locked.marker and not Marker(locked.marker).evaluate():
            continue
        present = installed.get(locked.name)
        if present is None or present.version != locked.version:
            raise NotInstalledError(
                f"{locked.name} {locked.version} is not installed in {site}: `make install`"
            )
        found.append(_of_others(locked, present))
        found += [_of_jar(jar) for jar in jars_in(site / locked.name.replace("-", "_") / "jars")]
    return sorted(found, key=lambda each: (each["purl"], each.get("bom-ref", "")))


def ours_in_image(image: str) -> Iterator[Project]:
    known = projects()
    if image not in known:  # the one that holds all
        yield from ours_in("twinlog")
        return
    yield from ours_in(image, without=SERVICES - {image})
    yield from (known[name] for name in ALSO_HOLDS.get(image, ()))


def document(image: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The bill of materials. Its serial number is a function of what it lists."""
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{image} {VERSION} {digest}')}",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "bom-ref": image, "name": image, "version": VERSION},
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        },
        "components": list(found),
    }


def licence_list(image: str, found: Sequence[dict[str, Any]]) -> str:
    """One line a component: name, version, licence."""
    rows = sorted((each["name"], each["version"], _licence_text(each)) for each in found)
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    head = f"Licences of what the image {image} {VERSION} holds. Their texts are in it.\n\n"
    return head + "".join(
        f"{name:{widths[0]}}  {version:{widths[1]}}  {licence}\n" for name, version, licence in rows
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sbom", description=__doc__)
    parser.add_argument(
        "image", nargs="*", default=list(IMAGES), help="twinlog, twinlog-source, …; default: all"
    )
    parser.add_argument("--site", type=Path, default=_own_site(), help="site-packages of the image")
    parser.add_argument("--output", type=Path, default=Path("dist"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for image in options.image:
        try:
            found = components(image, options.site)
        except NotInstalledError as error:
            sys.exit(str(error))
        text = json.dumps(document(image, found), indent=1, ensure_ascii=False) + "\n"
        _validate(text)
        (options.output / f"{image}.cdx.json").write_text(text)
        (options.output / f"{image}.licences.txt").write_text(licence_list(image, found))
    return 0


def _own_site() -> Path:
    import packaging

    return Path(packaging.__file__).parents[1]


def _validate(text: str) -> None:
    """Against CycloneDX's own schema where it is installed: an image has no need of it."""
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        return
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise ValueError(f"the bill of materials is not CycloneDX 1.6: {problem}")


def _of_ours(project: Project) -> dict[str, Any]:
    return _component(
        purl=f"pkg:pypi/{canonical(project.name)}@{project.version}",
        name=project.name,
        version=project.version,
        licence="Apache-2.0",
    )


def _of_others(locked: Locked, installed: Distribution) -> dict[str, Any]:
    assert isinstance(installed, PathDistribution)
    found = _component(
        purl=f"pkg:pypi/{locked.name}@{locked.version}",
        name=locked.name,
        version=locked.version,
        licence=licence_of(installed.metadata),
    )
    # Of each file that the lock allows: which of them was installed depends on the platform.
    found["properties"] = [{"name": "twinlog:locked-sha256", "value": digest} for digest in locked.hashes]
    return found


def _of_jar(jar: Jar) -> dict[str, Any]:
    found = _component(purl=jar.purl, name=jar.name, version=jar.version, licence=jar.licence)
    found["bom-ref"] = jar.file
    found["hashes"] = [{"alg": "SHA-256", "content": jar.sha256}]
    return found


def _component(*, purl: str, name: str, version: str, licence: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if licence:
        simple = " " not in licence
        found["licenses"] = (
            [{"expression": licence}]
            if simple or " OR " in licence or " AND " in licence
            else [{"license": {"name": licence}}]
        )
    return found


def _licence_text(component: dict[str, Any]) -> str:
    for entry in component.get("licenses", ()):
        return str(entry.get("expression") or entry["license"]["name"])
    return "see Spark's LICENSE" if component["purl"].startswith(("pkg:maven", "pkg:generic")) else "not said"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
