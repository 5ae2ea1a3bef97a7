"""An epoch lasts while its plan holds, for a bounded time."""

from twinlog_source.driver.epoch_rules import EpochSpan


def span(soonest: float = 30.0, longest: float = 600.0) -> EpochSpan:
    return EpochSpan(began=100.0, soonest_seconds=soonest, longest_seconds=longest)


def test_an_epoch_whose_plan_holds_stays_up_to_its_longest() -> None:
    epoch, asked = span(), []

    def holds() -> bool:
        asked.append(True)
        return True

    for tenth in range(6000):
        assert not epoch.is_over(100.0 + tenth / 10, holds)
    assert len(asked) == 600 / 30 - 1, "what costs is asked now and then"
    assert epoch.is_over(700.0, holds)


def test_an_epoch_whose_plan_no_longer_holds_ends_at_the_next_look() -> None:
    epoch = span()
    assert not epoch.is_over(129.9, lambda: False)
    assert epoch.is_over(130.0, lambda: False)
    later = span()
    assert not later.is_over(130.0, lambda: True)
    assert not later.is_over(159.9, lambda: False)
    assert later.is_over(160.0, lambda: False)


def test_an_epoch_that_may_not_stay_ends_at_its_soonest() -> None:
    epoch = span(longest=0.0)
    assert not epoch.is_over(129.9, lambda: True)
    assert epoch.is_over(130.0, lambda: True)
    assert span(soonest=0.0, longest=0.0).is_over(100.0, lambda: True)


def test_an_epoch_ends_at_its_longest_and_not_at_the_next_look() -> None:
    epoch = span(soonest=60.0, longest=90.0)
    assert not epoch.is_over(160.0, lambda: True)
    assert epoch.is_over(190.0, lambda: True)
