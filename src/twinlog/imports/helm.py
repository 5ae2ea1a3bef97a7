"""A properties file as values of the Helm chart (deploy/kubernetes/chart). Pure."""

import re
from typing import Final

from twinlog.imports.references import DEFAULT_SECRETS_DIR

_SECRET: Final = re.compile(re.escape(DEFAULT_SECRETS_DIR) + r"/([a-z0-9.-]+)")


def helm_values(properties: str) -> str:
    """Values with the file in `properties` and each Secret that it refers to in `secrets`. How the services
    know each other is not said: the chart asks for it. Comments stay out: the report has them, and to the
    chart a word such as `keystore.key:` in them looks like a secret."""
    plain = "\n".join(line for line in properties.splitlines() if not line.startswith("#"))
    lines = plain.strip().splitlines()
    secrets = sorted(set(_SECRET.findall(plain)))
    return "\n".join(
        [
            "# Choose one: security.tls.secretName, or security.insecure=true (docs/kubernetes.md).",
            f"secrets: [{', '.join(secrets)}]",
            "tools: {enabled: true}",
            "properties: |",
            *(f"  {line}" if line else "" for line in lines),
            "",
        ]
    )
