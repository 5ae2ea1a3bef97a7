"""Which deployment `twinlog status` asked: the properties file of its services, and where they are. Pure."""

from collections.abc import Sequence

from twinlog.cli.status.rows import ServiceRow


def deployment_lines(services: Sequence[ServiceRow], *, asked_file: str | None, own_host: str) -> list[str]:
    """A line for each deployment that answered: services of several files are no deployment, and the file
    that was given may be another one's. `asked_file`: that of --config, with links resolved, None = none was
    given; `own_host`: where that file is."""
    places: dict[tuple[str, str], list[str]] = {}
    for row in services:
        if row.config:
            places.setdefault((row.config, row.host), []).append(row.name)
    files = {config for config, _ in places}
    several = len(files) > 1
    lines = [
        f"deployment: {config} on {host}" + (f" ({', '.join(names)})" if len(places) > 1 else "")
        for (config, host), names in places.items()
    ]
    if several:
        lines.append("these services belong to different deployments: choose one with --config or --endpoint")
    elif asked_file is None and lines:
        lines[-1] += " (asked without --config FILE)"
    elif asked_file is not None and any(host == own_host for _, host in places) and asked_file not in files:
        lines.append(f"the services at the addresses in {asked_file} run with another properties file")
    return lines
