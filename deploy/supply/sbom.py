"""`make sbom`: what an image is made of, as CycloneDX 1.6 and as a list of licences.

The lock says which packages and with which hashes; the installed packages say their licences; Spark's jars
are listed one by one. Two runs on the same commit write the same bytes. Standard library only, but for
`packaging`: the build of an image runs it, too.
"""

import argparse
import hashlib
import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PathDistribution, distributions
from pathlib import Path
from typing import Any, Final

from deploy.supply.jars import Jar, jars_in
from deploy.supply.licences import licence_of
from deploy.supply.locks import FOLDER, Locked, read
from deploy.supply.projects import SERVICES, Project, canonical, ours_in, projects
from packaging.markers import Marker

IMAGES: Final = {
    "twinlog": "twinlog.txt",
    "twinlog-checkpoint": "library.txt",
    "twinlog-configsync": "library.txt",
    "twinlog-heartbeat": "library.txt",
    "twinlog-source": "source.txt",
}
"""Each image and its lock."""
ALSO_HOLDS: Final = {"twinlog": ("twinlog-source",)}
"""What an image holds beside its own distribution and its needs: `twinlog verify` reads logs with it."""
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
    yield from ours_in(image, without=SERVICES - {image})
    known = projects()
    yield from (known[name] for name in ALSO_HOLDS.get(image, ()))


def document(image: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The bill of materials. Its serial number is a function of what it lists."""
    version = projects()[image].version
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{image} {version} {digest}')}",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "bom-ref": image, "name": image, "version": version},
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        },
        "components": list(found),
    }


def licence_list(image: str, found: Sequence[dict[str, Any]]) -> str:
    """One line a component: name, version, licence."""
    rows = sorted((each["name"], each["version"], _licence_text(each)) for each in found)
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    head = f"Licences of what the image {image} {projects()[image].version} holds. Their texts are in it.\n\n"
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
