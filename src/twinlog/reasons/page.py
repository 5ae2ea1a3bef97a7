"""The tables of docs/reasons.md: `python -m twinlog.reasons.page docs/reasons.md`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from twinlog.reasons import KAFKA, OWN, Reason, shown_remedy
from twinlog.text_tables import markdown, renew


def tables() -> Mapping[str, str]:
    """By name."""
    own = (
        f"## {group.title}\n\n"
        + markdown(
            ("reason", "what it means", "what to do"),
            ((_named(each.name), each.meaning, each.remedy) for each in group.reasons),
        )
        for group in OWN
    )
    of_kafka: dict[str, list[Reason]] = {}
    for reason in KAFKA.reasons:
        of_kafka.setdefault(reason.name, []).append(reason)
    codes = (
        (
            _named(name),
            "; ".join(each.meaning for each in told),
            shown_remedy(told[0]),
            ", ".join(str(code) for each in told for code in each.codes),
        )
        for name, told in of_kafka.items()
    )
    head = ("reason", "what it means", "what to do", "Kafka's codes")
    return {"reasons": "\n".join(own), "Kafka": markdown(head, codes)}


def _named(reason: str) -> str:
    """With an anchor: reasons.md#RECORD_TOO_LARGE."""
    return f'<a id="{reason}"></a>`{reason}`'


if __name__ == "__main__":
    renew(Path(sys.argv[1]), tables())
