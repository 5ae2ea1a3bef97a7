"""Mirror topics with a rough history, translate random offsets, and compare the records on both sides: none
skipped, none read again.

    python tests/chaos/translation_chaos.py --seed 7 --records 1000000 --offsets 1000

Two flows, exactly once on and off, with a kept and a compacted topic each; plain, transactional and aborted
records; stretches that are copied twice; a copy that is deleted and created again; copies and source topics
that lose their tails; the source and the checkpoint service are killed (SIGKILL) while they work. Asked are
TranslateOffsets and the checkpoints that the service writes for groups, before and after it is killed again,
and the checkpoints and offsets on the target of groups that had read all before their log lost records.
The seed chooses everything but the moments. Exit code 0 only if every answer is the very same record; where a
log lost records, only if none is ahead.
"""

import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.mirrored_truth import PARTITIONS, Fault, Truth
from chaos.played import Outcome, parser_of, play
from chaos.rough_mirror import LONG_PATIENCE_SECONDS, RoughMirror, Truths, new_topics, run_properties
from chaos.translated_places import Place, as_groups, random_places, read_checkpoints, translate
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, unique_name

GOOD = (pb2.VERDICT_EXACT, pb2.VERDICT_UP_TO_DATE, pb2.VERDICT_PRESERVED)


@dataclass(slots=True, kw_only=True)
class TranslationOutcome(Outcome):
    """`records`: the visible ones of the source topics."""

    copies: int = 0
    duplicates: int = 0
    again: int = 0
    """Offsets that were copied a second time on purpose."""
    offsets: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    group_offsets: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    changed_by_restart: int = 0
    recreations: int = 0
    cut_offsets: Counter[str] = field(default_factory=Counter)
    """How many the logs of each side lost that were cut."""
    verdicts_of_lossy: Counter[str] = field(default_factory=Counter)
    """Where a log lost records: those have no answer, or one that is not ahead."""
    waiting_offsets: int = 0
    """Offsets of groups that had read all before their log lost records."""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Every offset was answered, by the very record, and again so after a restart."""
        good = {pb2.Verdict.Name(verdict) for verdict in GOOD}
        return not self.faults and not self.changed_by_restart and self.verdicts.keys() <= good

    def on_truths(self, truths: Truths) -> None:
        every: list[Truth] = [truth for partitions in truths.values() for truth in partitions.values()]
        self.records = sum(len(truth.source.names) for truth in every)
        self.copies = sum(len(truth.target.names) for truth in every)
        self.duplicates = sum(truth.duplicates for truth in every)

    def judge(self, truths: Truths, place: Place, translated: int, what: str, *, exact: bool = True) -> None:
        """Unless `exact`, records may be read again, but none may be skipped."""
        entry, number, offset = place
        fault = truths[entry][number].fault(offset, translated)
        if fault is not None and (exact or fault is Fault.SKIPPED):
            self.on_fault(fault, f"{what} on {entry.topic}-{number}: {offset} -> {translated}")

    def on_fault(self, fault: str, example: str) -> None:
        self.faults[fault] += 1
        if len(self.examples) < 5:
            self.examples.append(f"{fault}: {example}")


@dataclass(slots=True, kw_only=True)
class TranslationChaos:
    """On clusters of the caller's; what it makes has names of its own."""

    source: BlockingCluster
    target: BlockingCluster
    directory: Path
    seed: int
    records: int
    offsets: int
    kills: int
    rewinds: int
    groups: int
    recreations: int = 0
    cuts: int = 0
    outcome: TranslationOutcome = field(init=False)
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = TranslationOutcome(seed=self.seed)
        self.dice = random.Random(self.seed)

    async def run(self) -> TranslationOutcome:
        clock = SystemClock()
        started = clock.monotonic()
        mirrored = new_topics()
        async with (
            open_cluster("source", self.source.client_properties()) as source,
            open_cluster("target", self.target.client_properties()) as target,
            TwinlogRun(run_properties(mirrored, self.source, self.target), self.directory) as run,
        ):
            mirror = RoughMirror(
                cluster=self.source,
                target_cluster=self.target,
                source=source,
                target=target,
                run=run,
                mirrored=mirrored,
                dice=self.dice,
                kills=self.outcome.kills,
            )
            await mirror.make()
            await mirror.fill(
                self.records,
                kills=self.kills,
                rewinds=self.rewinds,
                recreations=self.recreations,
                cuts=self.cuts,
            )
            self.outcome.recreations, self.outcome.cut_offsets = mirror.recreations, mirror.cut_offsets
            truths = await mirror.truths()
            self.outcome.aborted, self.outcome.again = mirror.aborted, mirror.again
            self.outcome.on_truths(truths)
            await self._ask(mirror, truths)
            await self._follow_groups(mirror, truths)
            await self._look_at_waiting_groups(mirror, truths)
        self.outcome.seconds = round(clock.monotonic() - started, 1)
        return self.outcome

    async def _ask(self, mirror: RoughMirror, truths: Truths) -> None:
        """TranslateOffsets for random offsets, then the same again after a kill."""
        endpoint = mirror.run.endpoints["checkpoint"]
        asked = random_places(truths, self.offsets, self.dice)
        before = await translate(endpoint, asked)
        for place, answer in before.items():
            whole = place[0] not in mirror.lossy
            verdicts = self.outcome.verdicts if whole else self.outcome.verdicts_of_lossy
            verdicts[pb2.Verdict.Name(answer.verdict)] += 1
            if whole or answer.HasField("translated_offset"):
                exact = whole or answer.verdict in GOOD
                self.outcome.judge(truths, place, answer.translated_offset, "an answer", exact=exact)
        self.outcome.offsets = len(before)
        await mirror.kill("checkpoint")
        after = await translate(endpoint, asked)
        self.outcome.changed_by_restart = sum(
            after[place].translated_offset != answer.translated_offset
            for place, answer in before.items()
            if place[0] not in mirror.lossy
        )

    async def _follow_groups(self, mirror: RoughMirror, truths: Truths) -> None:
        """Groups at random offsets: the service is killed while it writes their checkpoints."""
        prefix = unique_name("group")
        places = random_places(truths, self.groups * len(truths) * PARTITIONS, self.dice)
        groups = as_groups(places, prefix, self.dice)
        for index, (group, held) in enumerate(sorted(groups.items())):
            offsets = {partition: CommittedOffset(next_offset=place[2]) for partition, place in held.items()}
            await retry_admin(partial(mirror.source.alter_group_offsets, group, offsets))
            if index == len(groups) // 2:
                await mirror.kill("checkpoint")
        wanted = {
            (group, TopicPartition(place[0].remote, place[1])): place
            for group, held in groups.items()
            for place in held.values()
            if place[0] not in mirror.lossy
        }
        lossy = {
            (group, TopicPartition(place[0].remote, place[1])): place
            for group, held in groups.items()
            for place in held.values()
            if place[0] in mirror.lossy
        }
        aliases = sorted({entry.flow.source for entry in truths})

        async def written() -> Mapping[tuple[str, TopicPartition], int] | None:
            found = await read_checkpoints(self.target.client_properties(), aliases, f"{prefix}-.*")
            return found if found.keys() >= wanted.keys() else None

        found = await eventually(written, LONG_PATIENCE_SECONDS)
        self.outcome.group_offsets = len(wanted)
        for key, place in wanted.items():
            self.outcome.judge(truths, place, found[key], key[0])
        for key, place in lossy.items():
            if key in found:
                self.outcome.judge(truths, place, found[key], key[0], exact=False)

    async def _look_at_waiting_groups(self, mirror: RoughMirror, truths: Truths) -> None:
        """What the service once wrote for them was right then; what is ahead now must be replaced."""
        aliases = sorted({entry.flow.source for entry in truths})
        groups = mirror.waiting_groups
        self.outcome.waiting_offsets = len(groups) * PARTITIONS
        ahead: list[str] = []

        def judge(what: str, group: str, number: int, translated: int) -> None:
            entry, held = groups[group]
            if truths[entry][number].fault(held[number], translated) is Fault.SKIPPED:
                ahead.append(f"{what} of {group}: {entry.topic}-{number}: {held[number]} -> {translated}")

        async def none_is_ahead() -> bool:
            ahead.clear()
            written = await read_checkpoints(self.target.client_properties(), aliases, "waits-.*")
            for (group, partition), offset in written.items():
                if group in groups and partition.topic == groups[group][0].remote:
                    judge("the checkpoint", group, partition.partition, offset)
            for group, offsets in (await mirror.target.group_offsets(list(groups))).items():
                assert not isinstance(offsets, KafkaError), offsets
                for partition, committed in offsets.items():
                    judge("the offset on the target", group, partition.partition, committed.next_offset)
            return not ahead

        if groups:
            try:
                await eventually(none_is_ahead)
            except AssertionError:
                for example in ahead:
                    self.outcome.on_fault(Fault.SKIPPED, example)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--offsets", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--rewinds", type=int, default=8, help="stretches that are copied twice")
    parser.add_argument("--recreations", type=int, default=1, help="copies deleted and created again")
    parser.add_argument("--cuts", type=int, default=4, help="logs that lose their tail")
    parser.add_argument("--groups", type=int, default=50)
    options = vars(parser.parse_args())

    async def game(at: Sequence[BlockingCluster], directory: Path) -> TranslationOutcome:
        return await TranslationChaos(source=at[0], target=at[1], directory=directory, **options).run()

    return play(game, ClusterSpec(name="A"), ClusterSpec(name="B"))


if __name__ == "__main__":
    sys.exit(main())
