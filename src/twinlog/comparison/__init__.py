"""Two logs, one a copy of the other: what matches, what is missing, added, changed or out of order. Pure: no
I/O, no clock.

    comparison = Comparison(bounds=bounds)
    yield from comparison.compare()           # generators: they yield requests to read
    proof = yield from judge(comparison)      # PartitionProof: compared ranges, differences, ranges left out

The caller says from which pair of offsets to which ends (`Bounds`), and answers the requests (Read -> Chunk,
Extend -> Extended), so it decides what reading may cost and when it has enough: `twinlog_source.verify` reads
everything, the translation of `twinlog_checkpoint` up to the offset of a group, within a budget. Tests answer
from memory.

The parts:
    view         what of a log counts, and what its copy does to it before it is compared
    sides        Cursor, Window: one side, read batch by batch; the requests
    compare      Comparison: the pass over both logs
    results      what it finds: equal records, hunks, ranges not compared; who wants less has its own
    judging      judge: the kind of each hunk
    model        Kind, Reason, Difference, NotCompared, Bounds, PartitionProof
"""
