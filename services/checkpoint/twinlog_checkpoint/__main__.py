"""`python -m twinlog_checkpoint --config mm2.properties`, installed as `twinlog-checkpoint`."""

from twinlog.service.app import service_main
from twinlog_checkpoint.app import build


def main() -> int:
    return service_main("checkpoint", build)


if __name__ == "__main__":
    raise SystemExit(main())
