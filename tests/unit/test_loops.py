"""Loops are refused at the start, whichever file, flow or third cluster they go over."""

import asyncio
import re
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config import ClientConfig, load
from twinlog.errors import ConfigError
from twinlog.filters.samples import samples
from twinlog.loops import circle_of, looping_flows, refuse_loops, same_places
from twinlog.model import Flow
from twinlog.service.app import ServiceContext, ServiceParts, service_main
from twinlog.service.clusters import Clusters
from twinlog.supervisor.plan import RunRequest, plan_run
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def settings(directory: Path, *flows: str, policy: str = IDENTITY, **topics: str) -> Path:
    """A file with flows such as `A->B: loop.*`."""
    lines = ["clusters = A, B, C, D, E", f"replication.policy.class = {policy}"]
    lines += [f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in "ABCDE"]
    for text in flows:
        flow, _, patterns = text.partition(": ")
        lines += [f"{flow}.enabled = true", f"{flow}.topics = {patterns}"]
    file = directory / "mm2.properties"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize(
    "flows",
    [
        ("A->B: loop.*", "B->C: loop.*", "C->A: loop.*"),
        ("A->B: .*", "B->C: .*", "C->A: orders"),
        ("A->B: orders, payments", "B->C: payments", "C->A: users, payments"),
        ("A->B: .*", "B->C: a.*", "C->A: .*b"),
        ("A->B: .*", "B->C: (orders|users)-[0-9]+", r"C->A: users-\\d{2}"),
        ("B->A: x", "A->B: y, eu.*", "B->C: eu.*", "C->D: .*", "D->A: .*"),
        ("A->C: other", "A->B: .*", "B->C: .*", "C->A: .*"),
    ],
)
def test_flows_that_would_copy_a_topic_round_are_refused(tmp_path: Path, flows: tuple[str, ...]) -> None:
    file = settings(tmp_path, *flows)
    with pytest.raises(ConfigError) as refused:
        refuse_loops(load(file, environ={}))
    assert refused.value.reason == "LOOP"
    assert str(file) in str(refused.value)
    first, _, _ = flows[-1].partition(": ")
    assert f"{first}.topics" in str(refused.value)


@pytest.mark.parametrize(
    "flows",
    [
        ("A->B: a.*", "B->A: b.*"),
        ("A->B: .*", "B->C: .*"),
        ("A->B: .*", "A->C: .*", "B->C: .*"),
        ("A->B: orders", "B->C: orders", "C->A: users"),
        ("A->B: .*", "B->A: .*"),
        ("A->B: .*", "B->A: .*", "B->C: .*", "C->B: .*"),
        ("A->B: .*", "B->A: .*", "B->C: .*", "C->B: .*", "A->C: .*", "C->A: .*"),
    ],
)
def test_flows_that_do_not_meet_may_start(tmp_path: Path, flows: tuple[str, ...]) -> None:
    refuse_loops(load(settings(tmp_path, *flows), environ={}))


ONE_CLUSTER = ("A->B: loop.*", "B->C: loop.*", "C->D: loop.*")


def test_an_alias_with_the_address_of_another_cluster_is_the_same_place(tmp_path: Path) -> None:
    file = settings(tmp_path, *ONE_CLUSTER)
    refuse_loops(load(file, environ={}))
    same = load(file, environ={}, overrides={"D.bootstrap.servers": "other:9092,a:9092"})
    with pytest.raises(ConfigError, match="A->B and B->C and C->D would copy topics in a loop"):
        refuse_loops(same)


def test_a_third_alias_that_has_the_addresses_of_two_makes_them_one() -> None:
    marks = {"A": {"a"}, "B": {"b"}, "C": {"a", "b"}, "D": {"b"}, "E": {"e"}}
    assert same_places(marks) == {"B": "A", "C": "A", "D": "A"}


async def test_flows_that_go_round_over_two_aliases_of_one_cluster_do_not_run(tmp_path: Path) -> None:
    """Their addresses differ: the cluster's id shows it."""
    clock, stop = FakeClock(), asyncio.Event()
    configuration = load(settings(tmp_path, *ONE_CLUSTER, "B->E: loop.*"), environ={})
    made = {alias: FakeCluster(alias, cluster_id="one" if alias in "AD" else None) for alias in "ABCDE"}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        clusters = Clusters(
            {alias: ClientConfig(alias=alias, properties={}) for alias in made},
            open_cluster=lambda config, _: made[config.alias],
            stack=stack,
            clock=clock,
            find_loops=partial(looping_flows, configuration),
        )
        assert clusters.refusal(Flow("A", "B")) is None, "nothing is known yet"
        group.create_task(clusters.probe(stop), name="probe")
        await eventually(lambda: all(status.as_of_ms for status in clusters.statuses()))
        stop.set()
    for flow in (Flow("A", "B"), Flow("B", "C"), Flow("C", "D")):
        refused = clusters.refusal(flow)
        assert refused is not None
        assert refused.reason == "LOOP"
        assert "D is the same cluster as A" in str(refused)
    assert clusters.refusal(Flow("B", "E")) is None


def test_a_topic_that_one_flow_excludes_does_not_go_round(tmp_path: Path) -> None:
    file = settings(tmp_path, "A->B: loop.*", "B->C: loop.*", "C->A: loop.*")
    refuse_loops(load(file, environ={}, overrides={"A->B.topics.exclude": "loop.*"}))


def test_the_default_policy_never_goes_round(tmp_path: Path) -> None:
    policy = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
    flows = ("A->B: .*", "B->C: .*", "C->A: .*")
    refuse_loops(load(settings(tmp_path, *flows, policy=policy), environ={}))


def test_a_flow_that_another_process_runs_counts_as_well(tmp_path: Path) -> None:
    file = settings(tmp_path, "A->B: .*", "B->C: .*", "C->A: .*")
    with pytest.raises(ConfigError, match="in a loop"):
        refuse_loops(load(file, environ={}, only_flows=[Flow("A", "B")]))


@pytest.mark.parametrize(
    ("pattern", "some"),
    [
        ("orders", "orders"),
        (".*", "a"),
        (r"eu\.orders-[0-9]+", "eu.orders-0"),
        ("(a|b)c?", "a"),
        ("[^a]x{3}", "0xxx"),
        ("(?:x|y)+z", "xz"),
    ],
)
def test_samples_of_a_pattern(pattern: str, some: str) -> None:
    assert some in samples(pattern)


@given(st.text(alphabet="ab.*+?()[]|\\{}1,^$d", max_size=12))
def test_every_sample_matches_and_no_pattern_raises(pattern: str) -> None:
    for name in samples(pattern):
        assert name
        assert re.compile(".+", re.DOTALL).fullmatch(name)


def test_run_and_every_service_end_with_exit_code_2_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def build(_context: ServiceContext, _stack: AsyncExitStack) -> ServiceParts:
        raise AssertionError("nothing is built")

    file = settings(tmp_path, "A->B: .*", "B->C: .*", "C->A: .*")
    assert service_main("heartbeat", build, ["--config", str(file)]) == 2
    assert "A->B.topics, B->C.topics, C->A.topics" in capsys.readouterr().err
    with ExitStack() as stack, pytest.raises(ConfigError, match="in a loop"):
        plan_run(RunRequest(config=file), environment={}, stack=stack)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("", "(.*) -> back-$1"),  # each time round under a longer name
        ("team-(.*) -> eu-$1", "eu-(.*) -> team-x$1"),
    ],
)
def test_copies_that_come_back_under_another_name_for_ever_are_refused(
    tmp_path: Path, there: str, back: str
) -> None:
    file = settings(tmp_path, "A->B: .*, team-a", "B->A: .*")
    with file.open("a") as added:
        added.write(f"\nA->B.twinlog.topic.rename = {there}\nB->A.twinlog.topic.rename = {back}\n")
    with pytest.raises(ConfigError) as refused:
        refuse_loops(load(file, environ={}))
    assert refused.value.reason == "LOOP"


@pytest.mark.parametrize(
    ("there", "back"), [("team-(.*) -> eu-$1", "eu-(.*) -> team-$1"), ("a -> b", "b -> a")]
)
def test_copies_that_come_back_under_their_first_name_are_known(
    tmp_path: Path, there: str, back: str
) -> None:
    file = settings(tmp_path, "A->B: a, team.*", "B->A: b, eu.*")
    with file.open("a") as added:
        added.write(f"\nA->B.twinlog.topic.rename = {there}\nB->A.twinlog.topic.rename = {back}\n")
    refuse_loops(load(file, environ={}))


def test_copies_that_come_back_under_another_name_once_are_not_refused(tmp_path: Path) -> None:
    file = settings(tmp_path, "A->B: orders", "B->A: eu-orders")
    with file.open("a") as added:
        added.write("\nA->B.twinlog.topic.rename = orders -> eu-orders\n")
    refuse_loops(load(file, environ={}))


@pytest.mark.parametrize(
    ("flow", "others"),
    [
        ("A->B", {"B->A", "B->C", "C->B"}),
        ("C->B", {"A->B", "B->A", "B->C"}),
        ("D->A", set()),
        ("A->E", set()),
    ],
)
def test_the_flows_over_which_a_way_leads_back(flow: str, others: set[str]) -> None:
    """D and E are on no way back."""
    flows = [Flow.parse(name) for name in ("A->B", "B->A", "B->C", "C->B", "D->A", "A->E")]
    assert circle_of(Flow.parse(flow), flows) == {Flow.parse(name) for name in others}


def test_hundreds_of_flows_with_one_hub_form_circles_over_all_of_them() -> None:
    flows = [each for number in range(300) for each in (Flow("hub", f"C{number}"), Flow(f"C{number}", "hub"))]
    assert {len(circle_of(flow, flows)) for flow in flows} == {599}
