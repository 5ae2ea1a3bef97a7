"""The demo's display: one live table with data from the services' RPCs."""

from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.table import Table

NOTHING_YET = "Spark is starting in the source service: the first records come within seconds"
COLUMNS = ("topic", "partitions", "records", "records/s", "MB/s", "lag", "delay")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One replicated topic at one moment."""

    source_topic: str
    target_topic: str
    partitions: int
    records: int
    records_per_second: float
    megabytes_per_second: float
    lag_records: int | None
    """None = unknown."""
    state: str


class Screen:
    """Steps as lines, with the table below them on a terminal; elsewhere a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._shown = 0
        self._waiting = False

    def step(self, text: str) -> None:
        self.console.print(f"[bold cyan]▸[/] {text}")

    def fact(self, text: str) -> None:
        self.console.print(Padding(f"[dim]{text}[/]", (0, 0, 0, 2), expand=False))

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, rows: list[TopicRow], delay_seconds: float | None) -> None:
        """Replace the table; without a terminal, print a line every tenth time."""
        begun = any(row.records for row in rows)
        if self._live is not None:
            self._live.update(_table(rows, delay_seconds, caption=None if begun else NOTHING_YET))
            return
        if not begun:
            if not self._waiting:
                self.fact(NOTHING_YET)
            self._waiting = True
            return
        if self._shown % 10 == 0:
            for row in rows:
                self.fact(
                    f"{row.source_topic} → {row.target_topic}: {row.records:,} records, "
                    f"{row.records_per_second:,.0f}/s, lag {_number(row.lag_records)}, "
                    f"delay {_seconds(delay_seconds)}"
                )
        self._shown += 1


def _table(rows: list[TopicRow], delay_seconds: float | None, *, caption: str | None) -> Table:
    table = Table(*COLUMNS, title="A → B, live", title_justify="left", expand=False)
    table.caption, table.caption_justify = caption, "left"
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            f"{row.source_topic} → {row.target_topic}",
            str(row.partitions),
            f"{row.records:,}",
            f"{row.records_per_second:,.0f}",
            f"{row.megabytes_per_second:.2f}",
            _number(row.lag_records),
            _seconds(delay_seconds),
            style=None if row.state == "RUNNING" else "yellow",
        )
    return table


def _seconds(delay_seconds: float | None) -> str:
    return "-" if delay_seconds is None else f"{delay_seconds * 1000:.0f} ms"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
