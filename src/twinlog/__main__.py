"""`python -m twinlog`: the command line, where the script is not on PATH."""

import sys

from twinlog.cli import main

if __name__ == "__main__":
    sys.exit(main())
