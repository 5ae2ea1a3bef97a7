"""Write deploy/grafana, and the alerts of the live page.

`--runbook https://wiki.example/alerts` prints rules with links to a runbook there, and writes nothing.
"""

import argparse
from pathlib import Path

from deploy.observability.files import files, rules


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.observability", description=__doc__)
    parser.add_argument("--runbook", metavar="URL")
    if place := parser.parse_args().runbook:
        print(rules(runbook=place), end="")  # noqa: T201
        return
    root = Path(__file__).resolve().parents[1]
    for name, text in files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
