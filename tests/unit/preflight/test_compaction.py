"""Topics of ours that grow for days are reported when the services may not change them."""

import pytest

from twinlog.preflight.facts import InternalTopic
from unit.preflight.facts_rig import EVERYTHING, Configure, facts_of, troubles

MISSING = {"segment.bytes": "16777216", "segment.ms": "600000"}


@pytest.mark.parametrize(
    ("name", "operations", "is_reported"),
    [
        ("mm2-offsets.A.internal", EVERYTHING, False),
        ("mm2-offsets.A.internal", EVERYTHING - {"ALTER_CONFIGS"}, True),
        ("A.checkpoints.internal", EVERYTHING, False),
        ("A.checkpoints.internal", EVERYTHING - {"ALTER_CONFIGS"}, True),
        ("connect-offsets", EVERYTHING, True),
    ],
)
def test_what_is_compacted_late_is_reported_with_the_command_that_helps(
    configure: Configure, name: str, operations: frozenset[str], is_reported: bool
) -> None:
    storage = name if name == "connect-offsets" else "mm2-offsets.A.internal"
    topic = InternalTopic(cluster="B", name=name, operations=operations, missing_settings=MISSING)
    facts = facts_of(configure({"offset.storage.topic": storage}), internal=(topic,))
    found = [finding for finding in troubles(facts) if finding.check == "compaction"]
    assert bool(found) is is_reported
    for finding in found:
        assert finding.about == f"A->B {name}"
        assert finding.remedy == (
            "kafka-configs.sh --bootstrap-server b:9092 --command-config admin.properties --alter"
            f" --entity-type topics --entity-name {name}"
            " --add-config segment.bytes=16777216,segment.ms=600000"
        )
