"""A task that was asleep, or whose driver was silent, for longer than the lease does not write any more."""

from twinlog_source.task.stream.driver_lease import DriverLease


def _running(lease: DriverLease, until: float) -> None:
    now = 0.0
    while now <= until:
        lease.awake(now)
        lease.heard(now)
        now += 0.5


def test_the_lease_holds_while_the_driver_is_heard() -> None:
    lease = DriverLease(10.0, 0.0)
    _running(lease, 100.0)
    assert lease.holds(109.0)


def test_it_ends_when_the_driver_is_silent() -> None:
    lease = DriverLease(10.0, 0.0)
    for now in range(11):
        lease.awake(float(now))
    assert not lease.holds(10.0)


def test_old_messages_that_are_read_after_a_sleep_do_not_bring_it_back() -> None:
    lease = DriverLease(10.0, 0.0)
    _running(lease, 5.0)
    lease.heard(60.0)
    lease.awake(60.0)
    assert not lease.holds(60.0)


def test_a_sleep_is_noticed_by_the_first_message_of_either_side() -> None:
    lease = DriverLease(10.0, 0.0)
    _running(lease, 5.0)
    lease.awake(60.0)
    lease.heard(60.0)
    assert not lease.holds(60.0)
