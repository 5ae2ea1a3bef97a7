"""`python -m twinlog`: the command line, where the script is not on PATH."""

from twinlog.cli import main

if __name__ == "__main__":
    main()
