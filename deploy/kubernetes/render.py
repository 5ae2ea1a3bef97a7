"""Lints the chart, renders deploy/kubernetes/manifests from it and checks them against Kubernetes' schemas.

    python -m deploy.kubernetes.render
    python -m deploy.kubernetes.render --check

Needs `helm` on the PATH (or HELM=/path/to/helm). `kubeconform` is asked, too, where it is there. What is
rendered says which chart it was made from, so that a unit test finds manifests that are out of date without
helm. `--check` writes nothing, exits with 1 for manifests that differ, and says so where helm is missing.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import kubernetes_validate
import yaml

# Kubernetes' schemas for kubeconform, from a package of the lock: nothing is downloaded while it checks.
#
# The package's schemas name themselves by an address on the web, and kubeconform resolves their references
# against it. What is written here has no such name, and refers to its neighbours.

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


HERE = Path(__file__).resolve().parent
CHART = HERE / "chart"
VALUES = HERE / "values"
MANIFESTS = HERE / "manifests"
RELEASE = "twinlog"
KUBERNETES = "1.37.0"
"""What the manifests are rendered for."""
OLDEST = (
    str(yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"])
    .removeprefix(">=")
    .removesuffix("-0")
)
"""What the chart promises to work with."""
_LINKED = "twinlog/templates/observability.yaml"
"""Boards and alerts: looked at, and not kept in the manifests, which would change with each board."""
OTHERS_KINDS = ("ServiceMonitor", "PrometheusRule")
"""Kinds of other projects, whose schemas Kubernetes does not have."""


def chart_files() -> list[Path]:
    """Without what it links to: boards and alerts change without the chart."""
    return sorted(path for path in CHART.rglob("*") if path.is_file() and not path.is_symlink())


def fingerprint(values: Path) -> str:
    """Digest of all that a rendering is made from."""
    digest = hashlib.sha256()
    for file in (*chart_files(), values):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def head(values: Path) -> str:
    return (
        f"# Rendered from deploy/kubernetes/chart with values/{values.name} by"
        f" `python -m deploy.kubernetes.render`.\n# Made from: {fingerprint(values)}\n"
    )


def rendered(helm: str, values: Path) -> str:
    """The manifests of the chart, linted and held against the schemas."""
    arguments = ["-f", str(values), "--kube-version", KUBERNETES]
    subprocess.run([helm, "lint", "--strict", "--quiet", str(CHART), *arguments], check=True)
    text = subprocess.run(
        [helm, "template", RELEASE, str(CHART), "--namespace", "kafka", *arguments],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    documents = [document for document in yaml.safe_load_all(text) if document]
    for document in documents:
        if document["kind"] not in OTHERS_KINDS:
            for version in (OLDEST, KUBERNETES):
                kubernetes_validate.validate(document, version, strict=True)
    if yaml.safe_load(values.read_text()).get("boards", {}).get("enabled"):
        _hold_boards_and_alerts(documents)
    if kubeconform := shutil.which("kubeconform"):
        for version in (OLDEST, KUBERNETES):
            _ask_kubeconform(kubeconform, text, version)
    parts = re.split(r"^---\n", text, flags=re.MULTILINE)
    return head(values) + "---\n".join(part for part in parts if f"# Source: {_LINKED}" not in part)


def _ask_kubeconform(program: str, text: str, version: str) -> None:
    with TemporaryDirectory() as directory:
        command = [
            *(program, "-strict", "-kubernetes-version", version, "-skip", ",".join(OTHERS_KINDS)),
            *("-schema-location", write_schemas(version, Path(directory)), "-"),
        ]
        subprocess.run(command, input=text, text=True, check=True)


def _hold_boards_and_alerts(documents: list[dict[str, Any]]) -> None:
    """What Grafana's sidecar and Prometheus' operator get is what deploy/grafana and deploy/prometheus hold.
    Raises ValueError."""
    boards = {
        name: json.loads(text)
        for each in documents
        if each["kind"] == "ConfigMap" and "grafana_dashboard" in each["metadata"]["labels"]
        for name, text in each["data"].items()
    }
    rules = [each["spec"] for each in documents if each["kind"] == "PrometheusRule"]
    if boards != {path.name: json.loads(path.read_text()) for path in (CHART / "boards").glob("*.json")}:
        raise ValueError("the chart's boards are not those of deploy/grafana")
    if rules != [yaml.safe_load((CHART / "alerts.yaml").read_text())]:
        raise ValueError("the chart's alerts are not those of deploy/prometheus")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    helm = shutil.which(os.environ.get("HELM", "helm"))
    if check and helm is None:
        sys.stdout.write("helm is not here: the manifests are not rendered and compared\n")
        return 0
    MANIFESTS.mkdir(exist_ok=True)
    different = []
    for values in sorted(VALUES.glob("*.yaml")):
        text, kept = rendered(helm or "helm", values), MANIFESTS / values.name
        if check and (not kept.exists() or kept.read_text() != text):
            different.append(values.name)
        elif not check:
            kept.write_text(text)
    for name in different:
        sys.stdout.write(f"manifests/{name} differs from the chart: run python -m deploy.kubernetes.render\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
