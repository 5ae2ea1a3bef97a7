"""Generate src/twinlog/api from proto/ (`make proto`); `--check` fails when what is checked in differs.

Not by `buf generate`: it fetches its plugins from a registry; these come with grpcio-tools and mypy-protobuf.
"""

import argparse
import filecmp
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
API = ROOT / "src" / "twinlog" / "api"


def generate(out: Path) -> None:
    """Write the Python modules and their stubs below `out`. Raises SystemExit when protoc refuses."""
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    well_known = str(files("grpc_tools") / "_proto")
    bin_dir = Path(sys.executable).parent
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={PROTO}",
            f"--proto_path={well_known}",
            f"--plugin=protoc-gen-mypy={bin_dir / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={bin_dir / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out={out}",
            f"--mypy_grpc_out=only_async:{out}",
            *sources,
        ]
    )
    if status != 0:
        raise SystemExit(status)
    api = out / "twinlog" / "api"
    for directory in [api, *(path for path in api.rglob("*") if path.is_dir())]:
        (directory / "__init__.py").write_text('"""Generated from proto/ by `make proto`. Never edited."""\n')


def differences(made: Path, kept: Path) -> list[str]:
    """Files that differ between the two trees, Python caches left out."""
    names = {
        str(path.relative_to(root))
        for root in (made, kept)
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    same = {
        name
        for name in names
        if (made / name).is_file()
        and (kept / name).is_file()
        and filecmp.cmp(made / name, kept / name, shallow=False)
    }
    return sorted(names - same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, change nothing")
    arguments = parser.parse_args()
    if not arguments.check:
        generate(ROOT / "src")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        stale = differences(Path(scratch) / "twinlog" / "api", API)
    for name in stale:
        sys.stderr.write(f"src/twinlog/api/{name} is not what proto/ says: run `make proto`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
