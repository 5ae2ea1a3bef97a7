"""`python -m twinlog_configsync --config mm2.properties`, installed as `twinlog-configsync`."""

from twinlog.service.app import service_main
from twinlog_configsync.app import build


def main() -> int:
    return service_main("configsync", build)


if __name__ == "__main__":
    raise SystemExit(main())
