"""Lints the chart, renders deploy/kubernetes/manifests from it and checks them against Kubernetes' schemas.

    python -m deploy.kubernetes.render

Needs `helm` on the PATH (or HELM=/path/to/helm) and the package kubernetes-validate. What is rendered says
which chart it was made from, so that a unit test finds manifests that are out of date without helm.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE / "chart"
VALUES = HERE / "values"
MANIFESTS = HERE / "manifests"
RELEASE = "twinlog"
KUBERNETES = "1.37.0"
"""Whose schemas the manifests are checked against."""
_OTHERS_KINDS = ("ServiceMonitor",)
"""Of other projects, whose schemas Kubernetes does not have."""


def fingerprint(values: Path) -> str:
    """Of all that a rendering is made from."""
    digest = hashlib.sha256()
    for file in (*sorted(path for path in CHART.rglob("*") if path.is_file()), values):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def head(values: Path) -> str:
    return (
        f"# Rendered from deploy/kubernetes/chart with values/{values.name} by"
        f" `python -m deploy.kubernetes.render`.\n# Made from: {fingerprint(values)}\n"
    )


def main() -> int:
    import kubernetes_validate
    import yaml

    helm = os.environ.get("HELM", "helm")
    MANIFESTS.mkdir(exist_ok=True)
    for values in sorted(VALUES.glob("*.yaml")):
        arguments = ["-f", str(values), "--kube-version", KUBERNETES]
        subprocess.run([helm, "lint", "--strict", str(CHART), *arguments], check=True)
        rendered = subprocess.run(
            [helm, "template", RELEASE, str(CHART), "--namespace", "kafka", *arguments],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for document in yaml.safe_load_all(rendered):
            if document and document["kind"] not in _OTHERS_KINDS:
                kubernetes_validate.validate(document, KUBERNETES, strict=True)
        (MANIFESTS / values.name).write_text(head(values) + rendered)
    return 0


if __name__ == "__main__":
    sys.exit(main())
