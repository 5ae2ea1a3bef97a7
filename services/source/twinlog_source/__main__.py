"""`python -m twinlog_source --config mm2.properties`, installed as `twinlog-source`."""

import os

# Read when grpc is imported: the JVM is started by a fork, which grpc would comment on.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from twinlog.service.app import service_main
from twinlog_source.app import build


def main() -> int:
    return service_main("source", build)


if __name__ == "__main__":
    raise SystemExit(main())
