"""`python -m bench.size`: what one process computes for a large flow, and for many flows. Half a minute.

No cluster and no Spark: processor time of the parts whose work grows with partitions or flows, at a tenth of
the size and at the size. What takes much more than ten times as long does not grow in proportion.
"""

import argparse
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

from twinlog.config import Address, load
from twinlog.model import TopicPartition
from twinlog.service.owner.assignment import Announcement, Offer, assign
from twinlog.telemetry.exporter import open_telemetry
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.config import SourceFlow, source_flows
from twinlog_source.driver.instruments import FlowInstruments, ObservedFlow, observe_flows
from twinlog_source.log.control import ControlState
from twinlog_source.partitions.events import EndsSeen, LogReread, TopicsChosen
from twinlog_source.partitions.planner import plan
from twinlog_source.partitions.standing import FlowFacts, standing_of
from twinlog_source.partitions.table import PartitionTable

PARTITIONS, FLOWS, PROCESSES = 100_000, 200, 10
PARTITIONS_A_TOPIC, SLOTS = 50, 16
TIMES = 3
FILE = """clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


@dataclass(frozen=True, slots=True)
class LargeFlow:
    flow: SourceFlow
    partitions: int

    def seconds(self) -> dict[str, float]:
        table, random, clock = PartitionTable(), Random(1), FakeClock()
        each = [
            TopicPartition(f"topic-{number // PARTITIONS_A_TOPIC:05}", number % PARTITIONS_A_TOPIC)
            for number in range(self.partitions)
        ]
        table.apply(TopicsChosen(targets={one: f"A.{one.topic}" for one in each}), 0.0)
        reread = LogReread(partitions=each, positions=dict.fromkeys(each, 0), leader_epochs={})
        table.apply(reread, 0.0)
        rates: dict[TopicPartition, float | None] = {one: random.expovariate(1e-4) for one in each}
        took = {"a plan": spent(lambda: plan(rates, max_slots=SLOTS))}
        made = plan(rates, max_slots=SLOTS)
        took["whether it still fits"] = spent(lambda: plan(rates, max_slots=SLOTS, previous=made))
        seen = EndsSeen(ends=dict.fromkeys(each, 9), asked_at=1.0)
        took["ends of the source"] = spent(lambda: table.apply(seen, 1.0))
        facts = self._facts(clock)
        took["all states"] = spent(lambda: [standing_of(row, facts) for row in table.rows.values()])
        instruments = FlowInstruments(_METER, self.flow, table, ControlState(), clock)
        observed = SimpleNamespace(
            gauges=instruments.gauges, facts=lambda: facts, workers_wanted=lambda: 1, slot_lags=lambda: [0]
        )
        _OBSERVED[:] = [cast("ObservedFlow", observed)]
        took["a scrape"] = spent(scrape)
        return took

    def _facts(self, clock: FakeClock) -> FlowFacts:
        return FlowFacts(
            now=clock.monotonic(),
            now_ms=clock.now_ms(),
            idle_reason="",
            idle_message="",
            positions_known=True,
            is_owned=True,
            stalled_seconds=60.0,
            delay_seconds=0.0,
            source="A",
            is_paused=lambda _: False,
            is_limited=lambda _: False,
            heard_at=lambda _: None,
            source_throttled_at=lambda _: None,
            target_throttled_at=lambda _: None,
            slow_slots=frozenset(),
        )


_OBSERVED: list[ObservedFlow] = []
_TELEMETRY = open_telemetry(
    service="bench", version="0", instance_id="1", listen=Address.parse("127.0.0.1:0"), environment={}
)
_METER = _TELEMETRY.meter


def scrape() -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{_TELEMETRY.port}/metrics") as answer:
        answer.read()


def sharing_out(flows: int) -> float:
    """Of one who leads the group: nobody has a flow yet."""
    offers = {f"site{number:04}->hub": Offer(rules="0123456789ab") for number in range(flows)}
    said = {
        f"m-{number}": Announcement(name=f"source-{number}:17401, process 7", flows=offers).to_bytes()
        for number in range(PROCESSES)
    }
    return spent(lambda: assign(said, 1))


def spent(work: Callable[[], object]) -> float:
    """The least of some times: the first one also makes what the others find."""
    seconds = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.size", description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--flows", type=int, default=FLOWS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, _TELEMETRY:
        file = Path(directory) / "mm2.properties"
        file.write_text(FILE)
        (flow,) = source_flows(load(file, environ={}))
        observe_flows(_METER, _OBSERVED)
        few, many = (
            LargeFlow(flow, count).seconds() for count in (arguments.partitions // 10, arguments.partitions)
        )
    print(f"{arguments.partitions:,} partitions in one flow, beside a tenth of them:")
    for what, seconds in many.items():
        print(f"{what:<24}{seconds:8.3f} s{seconds / few[what]:8.1f} x")
    few_flows, many_flows = sharing_out(arguments.flows // 10), sharing_out(arguments.flows)
    print(f"{arguments.flows:,} flows, {PROCESSES} processes, beside a tenth of the flows:")
    print(f"{'sharing them out':<24}{many_flows:8.3f} s{many_flows / few_flows:8.1f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
