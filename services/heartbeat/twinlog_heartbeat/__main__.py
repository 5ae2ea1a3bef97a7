"""`python -m twinlog_heartbeat --config mm2.properties`, installed as `twinlog-heartbeat`."""

from twinlog.service.app import service_main
from twinlog_heartbeat.app import build


def main() -> int:
    return service_main("heartbeat", build)


if __name__ == "__main__":
    raise SystemExit(main())
