"""Records the SHA-256 of the jars of Kafka that tests, the demo and `twinlog local` run.

To be run when a version changes: fetches each set without its recorded hashes, and writes what came. Look at
the difference before it is committed.
"""

import json
from dataclasses import replace

from twinlog.local.download.artifacts import (
    HASHES,
    KAFKA_4_TOOLS,
    broker_artifacts,
    ensure_jars,
    jar_hashes,
)
from twinlog.local.spec import KafkaVersion


def main() -> None:
    recorded = {}
    for artifacts in (*map(broker_artifacts, KafkaVersion), KAFKA_4_TOOLS):
        jars = ensure_jars(replace(artifacts, sha256={}))
        recorded[artifacts.name] = dict(sorted(jar_hashes(jars.directory).items()))
    HASHES.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
