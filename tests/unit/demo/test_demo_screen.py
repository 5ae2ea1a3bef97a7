"""What the demo shows of the copy, on a terminal and elsewhere."""

import io

from rich.console import Console

from twinlog.demo.screen import NOTHING_YET, Screen, TopicRow


def _row(records: int) -> TopicRow:
    return TopicRow(
        source_topic="orders",
        target_topic="A.orders",
        partitions=5,
        records=records,
        records_per_second=2000.0,
        megabytes_per_second=0.5,
        lag_records=7,
        state="RUNNING",
    )


def test_before_the_first_record_it_says_once_what_is_waited_for() -> None:
    console = Console(file=io.StringIO(), width=120)
    with Screen(console) as screen:
        for records in (0, 0, 0, 25_000):
            screen.show([_row(records)], 0.004)
    waiting, copying = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert NOTHING_YET in waiting
    assert "orders → A.orders: 25,000 records" in copying
    assert "4 ms" in copying


def test_on_a_terminal_the_last_table_stays() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Screen(console) as screen:
        screen.show([_row(0)], None)
        screen.show([_row(25_000)], 0.004)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "25,000" in text
    assert NOTHING_YET not in text.splitlines()[-1]


def test_elsewhere_than_on_a_terminal_a_line_every_tenth_time() -> None:
    console = Console(file=io.StringIO(), width=120)
    with Screen(console) as screen:
        for records in range(1, 22):
            screen.show([_row(records)], None)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split(": ")[1].split(" ")[0] for line in lines] == ["1", "11", "21"]
