"""`make digests` and `make images`: images of others by digest, and ours built on exactly these.

A tag names another image next month. `make digests` asks the registry, by docker, which digests the tags have
now and writes them into deploy/images.env and the compose files, to be committed; `make images` builds on
nothing else.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from deploy.supply.projects import ROOT
from deploy.supply.sbom import IMAGES, VERSION

FILE: Final = ROOT / "deploy" / "images.env"
COMPOSE: Final = tuple(sorted((ROOT / "deploy" / "compose").glob("*.yaml")))
PLATFORMS: Final = "linux/amd64,linux/arm64"
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}")
_OF_OTHERS: Final = re.compile(
    r"^(?P<key>\w+_IMAGE=| *image: )(?P<tag>(?!twinlog)[^\s@]+)(?:@\S+)?$", re.MULTILINE
)
"""A line that names an image of others, in deploy/images.env or a compose file."""
_ANSWER: Final = re.compile(r"sha256:[0-9a-f]{64}")


def base_images(text: str) -> Mapping[str, str]:
    """The build argument of each base image -> its reference, with a digest once `make digests` has run."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def tags(text: str) -> set[str]:
    """The images of others that a file names, without their digests."""
    return {found["tag"] for found in _OF_OTHERS.finditer(text)}


def pinned(text: str, digests: Mapping[str, str]) -> str:
    """The file with the digest of each tag. Raises KeyError for a tag without one."""
    return _OF_OTHERS.sub(lambda found: f"{found['key']}{found['tag']}@{digests[found['tag']]}", text)


def unpinned(text: str) -> list[str]:
    return [found["tag"] for found in _OF_OTHERS.finditer(text) if not _DIGEST.search(found[0])]


def build_command(image: str, bases: Mapping[str, str], epoch: int, registry: str = "") -> list[str]:
    """How an image is built, or for every platform built and pushed to a registry; `epoch` in seconds stands
    in it instead of the time of the build."""
    arguments = {"IMAGE": image, **bases, "SOURCE_DATE_EPOCH": str(epoch)}
    push = ("buildx", "build", "--platform", PLATFORMS, "--push") if registry else ("build",)
    tag = f"{registry}/{image}" if registry else image
    return [
        *("docker", *push, "--file", "deploy/Dockerfile", "--tag", f"{tag}:{VERSION}"),
        *(word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")),
        ".",
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make images", description=__doc__)
    parser.add_argument("command", choices=("digests", "build"))
    parser.add_argument("--tags", action="store_true", help="build on the tags where no digest is known")
    parser.add_argument("--push", metavar="REGISTRY", default="", help="for every platform, to a registry")
    options = parser.parse_args(arguments)
    if options.command == "digests":
        texts = {path: path.read_text() for path in (FILE, *COMPOSE)}
        digests = {tag: _digest_now(tag) for tag in sorted(set().union(*map(tags, texts.values())))}
        for path, text in texts.items():
            path.write_text(pinned(text, digests))
        return 0
    text = FILE.read_text()
    if unpinned(text) and not options.tags:
        sys.exit(f"no digest is known of {', '.join(unpinned(text))}: `make digests`, or ARGS=--tags")
    for image in IMAGES:
        subprocess.run(build_command(image, base_images(text), epoch(), options.push), check=True, cwd=ROOT)
    return 0


def _digest_now(tag: str) -> str:
    command = ["docker", "buildx", "imagetools", "inspect", tag, "--format", "{{.Manifest.Digest}}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode or not _ANSWER.fullmatch(answer.stdout.strip()):
        sys.exit(f"the digest of {tag} cannot be looked up: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer.stdout.strip()


def epoch() -> int:
    """Time of the commit, unless SOURCE_DATE_EPOCH says another."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
