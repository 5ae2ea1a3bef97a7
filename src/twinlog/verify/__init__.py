"""Whether a copy equals its source: decided from the batches of both logs. Pure: no I/O, no clock.

    comparison = Comparison(bounds)
    steps = prove(comparison)                 # a generator: yields what it wants to read, is sent the answers
    ...                                       # Read -> Chunk, Extend -> Extended
    proof = comparison.proof()                # PartitionProof: what was compared, each difference, what not

`drive` answers the questions of such a generator from logs in memory; twinlog_source.verify does it from
brokers.

The parts:
    model        Kind, Reason, Difference, NotCompared, Bounds, PartitionProof
    entries      Entry: one record as fingerprints of its parts
    align        align: the longest common subsequence of two windows
    sides        Cursor, Read, Chunk, Extend: one side of a comparison, read batch by batch
    compare      Comparison, compare: the pass over both logs, which finds hunks
    judge        judge: what each hunk is
    report       document, verdict: the report of a flow
"""
