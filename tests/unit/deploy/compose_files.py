"""The compose files as Compose puts them together, and the one recipe as it makes each image."""

import re
from typing import Any

import yaml

from unit.deploy.wheels import PROJECT

COMPOSE = PROJECT / "deploy/compose"
BASE, OBSERVABILITY, TLS = "compose.yaml", "compose.observability.yaml", "compose.tls.yaml"
DIAL_OUT, SPARK = "compose.dial-out.yaml", "compose.spark.yaml"
FILES: dict[str, Any] = {
    name: yaml.safe_load((COMPOSE / name).read_text()) for name in (BASE, OBSERVABILITY, TLS, DIAL_OUT, SPARK)
}
EACH = [(file, name) for file, document in FILES.items() for name in document["services"]]
"""(file, container)."""
IDS = [name for _, name in EACH]


def merged(file: str, name: str) -> dict[str, Any]:
    """A container of a file that is given after compose.yaml: what is a table in both is one table."""
    base = FILES[BASE]["services"].get(name, {}) if file != BASE else {}
    own = FILES[file]["services"][name]
    tables = {
        key: {**base[key], **value}
        for key, value in own.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **own, **tables}


def recipe(image: str) -> str:
    """The stages of deploy/Dockerfile that go into an image, in their order, with its name and no breaks of
    lines."""
    text = (PROJECT / "deploy/Dockerfile").read_text().replace("\\\n", " ").replace("${IMAGE}", image)
    head, *stages = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)
    by_name = {found[1]: each for each in stages if (found := re.match(r"FROM \S+ AS (\S+)", each))}
    needed: set[str] = set()
    waiting = [stages[-1]]
    while waiting:
        stage = waiting.pop()
        needed.add(stage)
        waiting += [
            by_name[name] for name in re.findall(r"(?:^FROM |--from=)(\S+)", stage) if name in by_name
        ]
    return head + "".join(each for each in stages if each in needed)
