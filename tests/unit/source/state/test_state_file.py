"""The file of a flow's state: every fact is in it, and what is damaged or of a later version is refused."""

import hashlib
import json
from dataclasses import replace
from typing import get_args

import pytest

from twinlog.errors import ConfigError
from twinlog_source.log.fact_records import KINDS, control_key, fact_record, kind_of
from twinlog_source.log.facts import (
    ClaimFact,
    CopyFact,
    Fact,
    ForeignFact,
    LeaderEpochsFact,
    OriginFact,
    OwnerFact,
    PauseFact,
    ProducerFact,
    ProofFact,
    RestoreFact,
    TargetFact,
    ThrottleFact,
    TopicFact,
    TransformsFact,
    TransformStart,
    WriterFact,
    ZeroFact,
)
from twinlog_source.state.state_file import lines, parse
from unit.source.state.state_rig import P, StateRig

ONE_OF_EACH: tuple[Fact, ...] = (
    ClaimFact(instance="one", at_ms=1),
    OwnerFact(instance="one", slots=1, renewed_at_ms=1),
    TopicFact(topic="t", topic_id="id", known_partitions=1),
    PauseFact(topic="t", partition=None, by="root", at_ms=1),
    ThrottleFact(topic="t", bytes_per_second=1, by="root", at_ms=1),
    ZeroFact(partition=P),
    LeaderEpochsFact(partition=P, epochs=()),
    TargetFact(partition=P, topic_id="id", end_offset=1, position=1),
    CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="id"),
    WriterFact(producer_id=1, producer_epoch=1),
    ProducerFact(producer_id=1, name="id", cluster_id="B", source_cluster_id="A", at_ms=1),
    TransformsFact(partition=P, target_topic_id="id", starts=(TransformStart("7f", 3),)),
    OriginFact(partition=P, target_topic_id="id", topic_id="id"),
    ProofFact(partition=P, verdict="EQUAL", proven_until=1, proven_at_ms=1, checked_at_ms=1),
    ForeignFact(partition=P, topic_id="id", records=1, writes=((0, 1, 1, 7, 0, 1),)),
    RestoreFact(import_id="id", at_ms=1),
)


async def test_state_with_facts_of_a_later_version_is_refused(copied: StateRig) -> None:
    await copied.store(control_key("A", "promise", "t"), b'{"kept":true}')
    state = await copied.export()
    copied.lose_the_topics()
    assert await copied.refusal(state) == "STATE_FILE_NEWER"


async def test_a_whole_file_of_another_format_names_the_version_that_reads_it(copied: StateRig) -> None:
    later = replace((await copied.export()).header, version="9.9.9")
    written = [b'{"twinlog_state":2,"version":"9.9.9"}\n', *list(lines(await copied.export()))[1:-1]]
    digest = hashlib.sha256(b"".join(written)).hexdigest()
    written.append(json.dumps({"end": {"lines": len(written), "sha256": digest}}).encode())
    with pytest.raises(ConfigError, match=rf"Twinlog {later.version} exported it") as refused:
        parse(written, name="state.jsonl")
    assert refused.value.reason == "STATE_FILE_NEWER"


def test_every_kind_of_fact_is_known_by_its_name() -> None:
    kinds = {kind_of(fact_record("A", fact)[0]) for fact in ONE_OF_EACH}
    assert kinds == KINDS
    assert {type(fact) for fact in ONE_OF_EACH} == set(get_args(Fact))


@pytest.mark.parametrize("damage", ["cut", "changed", "more", "nothing", "words"])
async def test_a_file_that_is_not_whole_is_not_read(copied: StateRig, damage: str) -> None:
    written = list(lines(await copied.export()))
    damaged = {
        "cut": written[:-1],
        "changed": [written[0].replace(b'"flow":"A->B"', b'"flow":"A->C"'), *written[1:]],
        "more": [*written, written[1]],
        "nothing": [],
        "words": [b"what is this\n"],
    }[damage]
    with pytest.raises(ConfigError) as refused:
        parse(damaged, name="state.jsonl")
    assert refused.value.reason == "STATE_FILE_DAMAGED"
