"""The report as one self-contained page of HTML: a picture of each partition, and the tables.

The JSON schema of the report: `twinlog verify --schema` prints it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from twinlog.comparison.model import NotComparedReason


def _beside(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def report_schema() -> dict[str, Any]:
    """JSON Schema, 2020-12."""
    schema: dict[str, Any] = json.loads(_beside("report.schema.json"))
    return schema


_MOST_ROWS = 1_000
_WIDTH = 1_000
_BAR = 14
_TICK = 3

_PAGE = Template(_beside("page.html"))


def page(report: Mapping[str, Any]) -> str:
    """`report` is the JSON document of a verification."""
    rules = report["rules"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in report["differences_by_kind"].items())
    return _PAGE.substitute(
        flow=escape(report["flow"]),
        verdict=escape(report["verdict"]),
        summary=escape(
            f"{report['records']} records equal in {len(report['partitions'])} partitions"
            f"{'; ' + kinds if kinds else ''}"
        ),
        rules="".join(
            f"<p>By version {rules['version']} of the rules: {escape(sentence)}</p>"
            for sentence in (rules["not_of_the_file"] if rules else ())
        ),
        partitions=_partitions(report),
        differences=_differences(report["differences"]),
        not_compared=_not_compared(report["not_compared"]),
    )


def _partitions(report: Mapping[str, Any]) -> str:
    differences = _by_partition(report["differences"])
    not_compared = _by_partition(report["not_compared"])
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            each["verdict"],
            each["records"],
            f"{each['source_from']}-{each['source_to']}",
            _Raw(_picture(each, differences.get(_place(each), ()), not_compared.get(_place(each), ()))),
        )
        for each in report["partitions"]
    ]
    return _table(("partition", "verdict", "records", "source offsets", "source log"), rows)


def _place(each: Mapping[str, Any]) -> tuple[str, int]:
    return each["topic"], each["partition"]


def _by_partition(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for each in items:
        found.setdefault(_place(each), []).append(each)
    return found


def _picture(
    partition: Mapping[str, Any],
    differences: Sequence[Mapping[str, Any]],
    not_compared: Sequence[Mapping[str, Any]],
) -> str:
    """The offsets of the source from left to right."""
    on_source = [
        each for each in not_compared if each["side"] == "source" and each["reason"] != NotComparedReason.LOST
    ]
    begin = min([partition["source_from"], *(each["from_offset"] for each in on_source)])
    end = max([partition["source_to"], *(each["to_offset"] for each in on_source)])
    scale = _WIDTH / max(1, end - begin)

    def box(kind: str, start: int, stop: int, least: float = 0) -> str:
        width = max(least, (stop - start) * scale)
        left = min((start - begin) * scale, _WIDTH - width)
        return f'<rect class="{kind}" x="{left:.1f}" y="0" width="{width:.1f}" height="{_BAR}"/>'

    shapes = [box("none", begin, end), box("equal", partition["source_from"], partition["source_to"])]
    for each in on_source:
        kind = "harmless" if each["harmless"] else "left"
        shapes.append(box(kind, each["from_offset"], each["to_offset"], _TICK))
    for each in differences[:_MOST_ROWS]:
        start = end if each["source_offset"] is None else each["source_offset"]
        shapes.append(box("wrong", start, start + each["count"], _TICK))
    return f'<svg viewBox="0 0 {_WIDTH} {_BAR}" preserveAspectRatio="none">{"".join(shapes)}</svg>'


class _Raw(str):
    """Text that is HTML already."""

    __slots__ = ()


def _differences(items: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            each["kind"],
            _offset(each["source_offset"]),
            _offset(each["target_offset"]),
            each["count"],
            ", ".join(each.get("changed", ())) or each.get("found_in", ""),
        )
        for each in items[:_MOST_ROWS]
    ]
    return _table(
        ("partition", "kind", "source offset", "target offset", "records", "what"), rows, len(items)
    )


def _not_compared(items: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            each["topic"] or "the flow"
            if each["partition"] is None
            else f"{each['topic']}-{each['partition']}",
            each["side"] or "",
            _offset(each["from_offset"], none=""),
            _offset(each["to_offset"], none=""),
            each["reason"],
            each["detail"],
        )
        for each in items[:_MOST_ROWS]
    ]
    return _table(("partition", "cluster", "from", "to", "reason", "detail"), rows, len(items))


def _offset(offset: int | None, *, none: str = "end") -> str | int:
    return none if offset is None else offset


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]], count: int | None = None) -> str:
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    more = "" if count is None or count <= len(rows) else f"<p>… and {count - len(rows)} more.</p>"
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def _cell(content: object) -> str:
    if isinstance(content, _Raw):
        return f"<td>{content}</td>"
    text = escape(str(content))
    if isinstance(content, int):
        return f'<td class="n">{text}</td>'
    return (
        f'<td class="{text}">{text}</td>'
        if text in ("EQUAL", "DIFFERENT", "INCOMPLETE")
        else f"<td>{text}</td>"
    )
