"""Twinlog beside the real MirrorMaker 2, on the same brokers and loads. Run it: `make bench`, or
`python -m bench --help`.

Read in `comparing/`: `comparison.py` (what is run, in which order), then `drain.py` (how a rate is measured)
and `figures.py` (what is computed from it). `goals.py` says what is to be reached. What stands beside it
measures one thing each, as a command of its own. `docs/benchmark.md` is for users.
"""
