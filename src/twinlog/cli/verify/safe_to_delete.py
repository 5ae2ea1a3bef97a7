"""`twinlog safe-to-delete A->B --topic T`: up to which source offset everything is proven to be on the
target."""

from dataclasses import replace
from typing import TYPE_CHECKING

from twinlog.cli.common.call import Call, reading_clusters
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.common.names import flow_of
from twinlog.cli.common.options import OptionalFlowArgument, flow_of_file, option
from twinlog.cli.common.output import print_rows
from twinlog.cli.common.pasteable import say
from twinlog.cli.common.times import EXPECTED, MOST_SECONDS
from twinlog.cli.verify.engine import engine, verified
from twinlog.cli.verify.options import IsolationOption, instant_of, reads_committed

if TYPE_CHECKING:
    from twinlog.comparison.model import PartitionProof
    from twinlog.model import TopicPartition
    from twinlog.verify.report import FlowFailure, SafeRange


@reading_clusters
def safe_to_delete_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: list[str] = option("--topic TOPIC", "A source topic. May be repeated."),
    before: str | None = option(
        "--before TIME|OFFSET",
        f"Only what is older than this time ({EXPECTED}), or lies before this offset of the source.",
        None,
    ),
    wait: float = option(
        "--wait SECONDS",
        "How long to wait for the copy to reach that offset.",
        30.0,
        min=0.0,
        max=MOST_SECONDS,
    ),
    isolation: IsolationOption = None,
) -> None:
    """Verify topics, and show up to which source offset all records are on the target.

    The command verifies the topic from the beginning of its log; it does not rely on earlier verifications,
    because the target may have deleted records since. Records that retention removed from the copy, gaps and
    lag count as not on the target, and so do topics whose records transforms change or drop. The command
    deletes nothing. To delete: check that the copy keeps its records long enough, then run
    kafka-delete-records.sh with the offsets shown as `safe before`.

    Exit codes: 0 everything before --before, or everything there is, may be deleted on the source; 1 some of
    it may not; 2 wrong usage.

    Example: twinlog safe-to-delete 'A->B' --topic orders --before -7d --config mm2.properties
    """
    from twinlog.cli.verify.tables import print_rules
    from twinlog.policy.transformed import TopicTransforms
    from twinlog.verify.report import rules_used, safe_ranges

    configuration = call.configuration
    request = engine("verify.request").VerifyRequest(
        flow=flow_of(flow_of_file(flow, configuration)),
        topics=frozenset(topic),
        end=instant_of("--before", before),
        wait_seconds=wait,
        read_committed=reads_committed(isolation),
    )
    report = call.run(verified(configuration, request))
    compacted = frozenset(proof.source.topic for proof in report.proofs if proof.target_compacted)
    told = [*report.failures]
    whole: dict[TopicPartition, PartitionProof] | None = None
    if request.end is not None and compacted:
        later = call.run(verified(configuration, replace(request, end=None, topics=compacted)))
        told += later.failures
        whole = {proof.source: proof for proof in later.proofs}
    transforms = TopicTransforms(configuration.flow(report.flow).policy_config, report.flow.source)
    found = safe_ranges(report.proofs, whole, is_changed=transforms.changes_records)
    is_safe = not told and len(found) == len(report.proofs) and all(each.is_whole for each in found)
    failures = [as_json(_PROBLEM, each) for each in told]
    document = {"flow": str(report.flow), "safe": is_safe, "at_ms": report.began_at_ms}
    document |= {"rules": rules_used(report), "partitions": [as_json(_RANGE, each) for each in found]}

    def text() -> None:
        print_rows(_RANGE, found, empty="no partition was compared")
        print_rules(rules_used(report))
        for failure in failures:
            say(f"{failure['topic'] or report.flow}: {failure['reason']} {failure['detail']}")

    call.tell({**document, "problems": failures}, text, fails=not is_safe)


_RANGE: Fields["SafeRange"] = table(
    "topic=source.topic partition=source.partition",
    Field("", "source", "partition", lambda each: str(each.source)),
    "source_begin=begin|source_begins> safe_until=until|safe_before> asked_until=end|requested>",
    "safe=is_whole",
    Field("reason", column="why not more", text=lambda each: f"{each.reason} {each.detail}".strip()),
    "detail",
)
_PROBLEM: Fields["FlowFailure"] = table("topic reason detail")
