"""`python -m twinlog_checkpoint --config mm2.properties`, installed as `twinlog-checkpoint`."""

import gc

from twinlog.service.app import service_main
from twinlog_checkpoint.app import build

GC_THRESHOLDS = (20_000, 20, 50)
"""A pass makes objects for each offset of each group, which stay: with Python's thresholds (700, 10, 10) the
collector looks at all of them again and again, for up to half of the pass, and nothing else runs then."""


def main() -> int:
    gc.set_threshold(*GC_THRESHOLDS)
    return service_main("checkpoint", build)


if __name__ == "__main__":
    raise SystemExit(main())
