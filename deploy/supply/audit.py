"""`make audit`: holds the locked packages against the public database of advisories, by pip-audit.

A finding fails, unless deploy/requirements/accepted-advisories.txt accepts it. Where the database cannot be
asked the audit is SKIPPED, with the reason, and fails nothing, unless TWINLOG_REQUIRE_ADVISORIES is set, as
where a release is built.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.supply.locks import FOLDER

ACCEPTED = FOLDER / "accepted-advisories.txt"
LOCKS = ("dev.txt", "java.txt", "kerberos.txt")
"""Together they hold what every other lock holds."""
_PEER_SECONDS = 15
_WHOLE_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Verdict:
    failed: bool
    lines: tuple[str, ...]
    """For the person who runs it."""


def accepted(path: Path) -> Mapping[str, str]:
    """Why an advisory is accepted, by its id. Raises ValueError for one without a reason."""
    reasons: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            advisory, _, reason = line.strip().partition(" ")
            if not reason.strip():
                raise ValueError(f"{path.name}: {advisory} is accepted without a reason")
            reasons[advisory] = reason.strip()
    return reasons


def judge(report: str, complaint: str, accepted_ids: Collection[str], *, required: bool = False) -> Verdict:
    """What pip-audit's report means: its JSON, and what it wrote to standard error. `required`: an audit that
    could not ask has failed."""
    try:
        packages: list[Mapping[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = [line for line in complaint.splitlines() if line.strip()][-1:] or ["no report"]
        return Verdict(failed=required, lines=(f"SKIPPED: the database cannot be asked: {last[0].strip()}",))
    asked = [package for package in packages if "skip_reason" not in package]
    unknown = [package for package in packages if "skip_reason" in package]
    if not asked:
        why = unknown[0]["skip_reason"] if unknown else "no package was looked up"
        return Verdict(failed=required, lines=(f"SKIPPED: the database cannot be asked: {why}",))
    findings = [
        f"{package['name']} {package['version']}: {advisory['id']}"
        f" (fixed in {', '.join(advisory.get('fix_versions') or ()) or 'no version yet'})"
        for package in asked
        for advisory in package.get("vulns", ())
        if not {advisory["id"], *advisory.get("aliases", ())} & set(accepted_ids)
    ]
    lines = [f"FINDING: {finding}" for finding in findings]
    lines += [f"SKIPPED: {package['name']}: {package['skip_reason']}" for package in unknown]
    lines.append(f"{len(asked)} packages looked up, {len(findings)} findings")
    return Verdict(failed=bool(findings) or (required and bool(unknown)), lines=tuple(lines))


def main(arguments: Sequence[str]) -> int:
    failed = False
    for name in LOCKS:
        required = bool(os.environ.get("TWINLOG_REQUIRE_ADVISORIES"))
        verdict = judge(*_ask(FOLDER / name), accepted(ACCEPTED), required=required)
        failed = failed or verdict.failed
        sys.stdout.writelines(f"audit {name}: {line}\n" for line in verdict.lines)
    return 1 if failed else 0


def _ask(lock: Path) -> tuple[str, str]:
    """pip-audit's report and complaints; no report when it takes too long."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--requirement", str(lock)),
        *("--format", "json", "--progress-spinner", "off", "--timeout", str(_PEER_SECONDS)),
    ]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_WHOLE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {_WHOLE_SECONDS} seconds"
    return ended.stdout, ended.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
