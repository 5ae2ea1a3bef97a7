"""Kubernetes' schemas for kubeconform, from a package of the lock: nothing is downloaded while it checks.

The package's schemas name themselves by an address on the web, and kubeconform resolves their references
against it. What is written here has no such name, and refers to its neighbours.
"""

import json
from importlib.resources import files
from pathlib import Path

LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
"""The name of a kind's schema, as kubeconform writes templates."""
_NEIGHBOUR = "/api/_definitions.json#"


def write_schemas(version: str, directory: Path) -> str:
    """Write the strict schemas of a Kubernetes version, and return where kubeconform looks for them."""
    package = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    for file in package.iterdir():
        if file.name.endswith(".json"):
            schema = json.loads(file.read_text().replace(f'"{_NEIGHBOUR}', '"_definitions.json#'))
            schema.pop("$id", None)
            (directory / file.name).write_text(json.dumps(schema))
    return f"{directory}/{LOCATION}"
