"""How the boards show what they ask."""

from typing import Any

from deploy.observability.grafana import Panel, Query

YES = ((0.0, "no", "red"), (1.0, "yes", "green"))
"""Words and colours of a figure that is 0 or 1."""
ANY_IS_BAD = (("red", 1.0),)


def panel(
    title: str,
    meaning: str,
    *queries: tuple[str, str],
    **more: Any,
) -> Panel:
    """`queries`: expression and legend of each. `more`: further fields of Panel."""
    return Panel(
        title=title,
        meaning=meaning,
        queries=tuple(Query(expression=expression, legend=legend) for expression, legend in queries),
        **more,
    )
