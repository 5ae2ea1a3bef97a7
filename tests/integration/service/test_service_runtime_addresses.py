"""Addresses are reserved on real sockets before any child starts."""

import errno
import socket
from contextlib import ExitStack

import pytest

from twinlog.config import Address, Service, ServiceEndpoints
from twinlog.errors import ConfigError
from twinlog.service.grpc_server import free_port
from twinlog.supervisor.plan import Neighbours, child_overrides, reserve_addresses


def _endpoints(
    listen: str, endpoint: str | None = None, *, is_default: bool = False, metrics: str | None = None
) -> dict[Service, ServiceEndpoints]:
    address = Address.parse(listen)
    found = ServiceEndpoints(
        listen=address,
        listen_is_default=is_default,
        endpoint=address if endpoint is None else Address.parse(endpoint),
        metrics_listen=Address.parse(metrics) if metrics else None,
        metrics_is_default=is_default,
    )
    return dict.fromkeys(Service, found)


def test_port_0_becomes_a_free_port_that_peers_are_told() -> None:
    with ExitStack() as stack:
        addresses = reserve_addresses(_endpoints("127.0.0.1:0"), list(Service), stack)
        overrides = child_overrides(addresses)

    ports = {address.listen.port for address in addresses.values()}
    assert len(ports) == len(Service)
    assert 0 not in ports
    source = addresses[Service.SOURCE].listen
    assert overrides["twinlog.source.listen"] == str(source)
    assert overrides["twinlog.source.endpoint"] == str(source)


def test_a_reserved_port_can_be_bound_by_the_child_and_is_taken_once_it_listens() -> None:
    with ExitStack() as stack:
        address = reserve_addresses(_endpoints("127.0.0.1:0"), [Service.SOURCE], stack)[Service.SOURCE]
        with socket.socket() as child:
            child.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            child.bind((address.listen.host, address.listen.port))
            child.listen()
            with ExitStack() as other, pytest.raises(ConfigError) as refusal:
                reserve_addresses(_endpoints(str(address.listen)), [Service.SOURCE], other)

    assert refusal.value.reason == "ADDRESS_IN_USE"
    assert refusal.value.metadata["key"] == "twinlog.source.listen"
    assert "twinlog.source.listen" in str(refusal.value)


def test_peers_reach_a_wildcard_address_by_loopback_and_a_named_endpoint_stays() -> None:
    with ExitStack() as stack:
        wildcard = reserve_addresses(_endpoints("0.0.0.0:0"), [Service.SOURCE], stack)[Service.SOURCE]
        named = reserve_addresses(_endpoints("0.0.0.0:0", "proxy.example:443"), [Service.SOURCE], stack)

    assert str(wildcard.endpoint) == f"127.0.0.1:{wildcard.listen.port}"
    assert str(named[Service.SOURCE].endpoint) == "proxy.example:443"
    assert named[Service.SOURCE].local.host == "127.0.0.1"


def test_an_address_that_does_not_exist_is_named() -> None:
    with ExitStack() as stack, pytest.raises(ConfigError) as refusal:
        reserve_addresses(_endpoints("192.0.2.1:1"), [Service.HEARTBEAT], stack)

    assert "twinlog.heartbeat.listen" in str(refusal.value)


def test_a_default_address_makes_way_for_another_run_and_a_chosen_one_is_refused() -> None:
    with ExitStack() as stack:
        first = reserve_addresses(_endpoints("127.0.0.1:0"), [Service.SOURCE], stack)[Service.SOURCE]
        wanted = str(first.listen)
        # The child of the other run does not listen yet: the kernel would give the address twice.
        neighbours = Neighbours(holders={wanted: "`twinlog run /etc/other.properties`"}, make_way=True)
        moved = reserve_addresses(
            _endpoints(wanted, is_default=True), [Service.SOURCE], stack, neighbours=neighbours
        )[Service.SOURCE]
        with pytest.raises(ConfigError, match=r"other\.properties") as refusal:
            reserve_addresses(_endpoints(wanted), [Service.SOURCE], stack, neighbours=neighbours)

    assert moved.listen.port not in (0, first.listen.port)
    assert moved.endpoint == moved.listen
    assert refusal.value.reason == "ADDRESS_IN_USE"


def test_an_address_of_metrics_that_is_taken_makes_way_where_nobody_chose_it() -> None:
    with socket.socket() as taken, ExitStack() as stack:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = f"127.0.0.1:{taken.getsockname()[1]}"
        default = _endpoints("127.0.0.1:0", is_default=True, metrics=wanted)
        chosen = _endpoints("127.0.0.1:0", metrics=wanted)
        moved = reserve_addresses(default, [Service.SOURCE], stack)
        left = reserve_addresses(chosen, [Service.SOURCE], stack)

    metrics = moved[Service.SOURCE].metrics
    assert metrics is not None
    assert str(metrics) not in (wanted, "127.0.0.1:0")
    assert child_overrides(moved)["twinlog.source.metrics.listen"] == str(metrics)
    assert left[Service.SOURCE].metrics is None
    assert "twinlog.source.metrics.listen" not in child_overrides(left)


def test_an_address_of_a_name_that_the_machine_does_not_have_is_left_out() -> None:
    """As `::1` of `localhost` where IPv6 is off. 192.0.2.1 is no machine's (RFC 5737)."""

    def resolve(host: str, port: int, **hints: int) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in addresses[host]]

    addresses = {"both": ["192.0.2.1", "127.0.0.1"], "none": ["192.0.2.1"]}
    assert free_port(Address.parse("both:0"), resolve=resolve) > 0
    with pytest.raises(OSError) as refused:
        free_port(Address.parse("none:0"), resolve=resolve)
    assert refused.value.errno == errno.EADDRNOTAVAIL


def _entry(listen: str, metrics: str, *, is_default: bool) -> ServiceEndpoints:
    return ServiceEndpoints(
        listen=Address.parse(listen),
        listen_is_default=False,
        endpoint=Address.parse(listen),
        metrics_listen=Address.parse(metrics),
        metrics_is_default=is_default,
    )


def _port_that_is_free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_default_port_of_metrics_makes_way_for_what_another_service_of_the_run_listens_on() -> None:
    wanted = f"127.0.0.1:{_port_that_is_free()}"
    endpoints = {
        Service.SOURCE: _entry("127.0.0.1:0", wanted, is_default=True),
        Service.CHECKPOINT: _entry(wanted, "127.0.0.1:0", is_default=True),
    }
    with ExitStack() as stack:
        addresses = reserve_addresses(endpoints, list(endpoints), stack)

    assert str(addresses[Service.CHECKPOINT].listen) == wanted
    assert str(addresses[Service.SOURCE].metrics) not in (wanted, "None")


def test_one_address_chosen_twice_in_a_run_is_refused_with_both_keys() -> None:
    wanted = f"127.0.0.1:{_port_that_is_free()}"
    endpoints = {
        Service.SOURCE: _entry("127.0.0.1:0", wanted, is_default=False),
        Service.CHECKPOINT: _entry(wanted, "127.0.0.1:0", is_default=False),
    }
    with ExitStack() as stack, pytest.raises(ConfigError) as refusal:
        reserve_addresses(endpoints, list(endpoints), stack)

    assert refusal.value.reason == "ADDRESS_IN_USE"
    assert "twinlog.source.metrics.listen" in str(refusal.value)
    assert "twinlog.checkpoint.listen" in str(refusal.value)
