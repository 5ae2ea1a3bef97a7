"""Whom cores are lent to, where lent workers find the owner, and when neither side does it."""

from pathlib import Path

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.config import Address, Configuration, load
from twinlog.model import Flow
from twinlog.service.owner.assignment import Why
from twinlog.service.owner.membership import FlowOwner
from twinlog.testing.rpc import MemoryRpc, RpcNetwork
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.driver.lender import DriverPlace
from twinlog_source.driver.stream.lending import lendable_owners, refusal_of_open_port, shares
from twinlog_source.driver.stream.worker_port import LentPort, WorkerPort, listen_address
from twinlog_source.driver.stream.worker_servicer import WorkerServicer

BASE = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
OPEN = "twinlog.source.listen = 0.0.0.0:17401\n"
TLS = "twinlog.tls.certificate.file = /c\ntwinlog.tls.key.file = /k\ntwinlog.tls.ca.file = /a\n"
BESIDE, AWAY = "127.0.0.1:17401", "other:17401"


def configuration(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "mm2.properties"
    file.write_text(BASE + text)
    return load(file, environ={}, strict=True)


def owner(name: str, address: str, *, why: str = Why.ONLY_ONE) -> FlowOwner:
    process = f"{'box' if address == BESIDE else 'other'}:17401, process 7"
    return FlowOwner(
        flow=Flow(name, "Z"),
        process=process,
        address=address,
        moves_to="",
        why=why,
        able=(process,),
        megabytes_per_second=0,
    )


def lendable(
    *owners: FlowOwner, reached: str = "AB", has_whole_machine: bool = False, is_safe: bool = True
) -> dict[str, str]:
    found = lendable_owners(
        owners,
        reaches=lambda flow: flow.source in reached,
        host="box",
        has_whole_machine=has_whole_machine,
        is_safe=is_safe,
    )
    return {address: "".join(flow.source for flow in flows) for address, flows in found.items()}


def test_cores_are_for_owners_that_they_help_and_that_may_be_trusted() -> None:
    both = owner("A", BESIDE), owner("B", AWAY)
    assert lendable(*both) == {BESIDE: "A", AWAY: "B"}
    assert lendable(*both, is_safe=False) == {BESIDE: "A"}
    assert lendable(*both, has_whole_machine=True) == {AWAY: "B"}, "one machine's cores are not more"
    assert lendable(*both, reached="A") == {BESIDE: "A"}
    assert lendable(owner("A", AWAY), owner("B", AWAY), reached="A") == {}, (
        "its workers run tasks of any flow"
    )
    assert lendable(owner("A", AWAY, why=Why.IN_DOUBT), owner("B", "")) == {}


def test_every_core_is_lent_once() -> None:
    assert shares({AWAY: 9}, 4, {}) == {AWAY: 4}
    assert shares({AWAY: 9, BESIDE: 9}, 1, {AWAY: 1}) == {BESIDE: 0, AWAY: 1}
    assert shares({}, 4, {AWAY: 4}) == {}


def test_what_an_owner_does_not_use_goes_to_one_that_does_and_else_stays() -> None:
    assert shares({AWAY: 0, BESIDE: 9}, 4, {}) == {AWAY: 0, BESIDE: 4}
    assert shares({AWAY: 1, BESIDE: 9}, 4, {AWAY: 4}) == {AWAY: 1, BESIDE: 3}
    assert shares({AWAY: 1, BESIDE: 0}, 4, {AWAY: 2, BESIDE: 1}) == {AWAY: 2, BESIDE: 1}


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ("", None),
        ("twinlog.source.endpoint = proxy.example:17401\n", "TLS and no authentication"),
        (OPEN + "twinlog.insecure = true\n", "TLS and no authentication"),
        (OPEN + "twinlog.insecure = true\ntwinlog.auth.tokens.file = /t\n", "TLS"),
        (OPEN + TLS + "twinlog.tls.client.auth = none\ntwinlog.insecure = true\n", "authentication"),
        (OPEN + TLS, None),
    ],
)
def test_no_secret_of_a_worker_crosses_a_port_that_is_open(
    tmp_path: Path, keys: str, missing: str | None
) -> None:
    refusal = refusal_of_open_port(configuration(tmp_path, keys))
    if missing is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.reason == "CORES_NOT_LENT"
        assert f"has no {missing}, and" in str(refusal)


@pytest.mark.parametrize(
    ("keys", "own", "at", "opened"),
    [
        ("", BESIDE, "127.0.0.1:{own}", 0),
        (OPEN + TLS, AWAY, "other:{lent}", 1),
        (OPEN + TLS + "twinlog.source.worker.listen = 0.0.0.0:17405\n", AWAY, "other:{own}", 0),
        (
            OPEN + TLS + "twinlog.source.worker.endpoint = gate.example:17405\n",
            AWAY,
            "gate.example:17405",
            0,
        ),
    ],
)
async def test_a_port_for_workers_of_other_machines_opens_with_the_first_lender(
    tmp_path: Path, keys: str, own: str, at: str, opened: int
) -> None:
    found, network = configuration(tmp_path, keys), RpcNetwork()
    ports: list[WorkerPort] = []

    async def open_port(listen: Address) -> WorkerPort:
        port = WorkerPort(
            WorkerServicer({}),
            listen=listen,
            meter=NoOpMeterProvider().get_meter("test"),
            clock=LoopClock(),
            rpc=MemoryRpc(network),
        )
        await port.start()
        ports.append(port)
        return port

    port = await open_port(listen_address(found))
    lent = LentPort(found, port, open_port=open_port, own_address=lambda: own)
    places = [await lent.place(), await lent.place()]
    assert len(ports) == 1 + opened
    endpoint = at.format(own=port.number, lent=ports[-1].number)
    assert places == [DriverPlace(endpoint=endpoint, certificate=ports[-1].certificate)] * 2
    for each in ports:
        await each.stop()
