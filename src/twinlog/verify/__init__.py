"""Whether a copy equals its source: decided from the batches of both logs. Pure: no I/O, no clock.

    comparison = Comparison(bounds=bounds)
    yield from comparison.compare()           # generators: they yield requests to read
    proof = yield from judge(comparison)      # PartitionProof: compared ranges, differences, ranges left out

twinlog_source.verify answers the requests (Read -> Chunk, Extend -> Extended) from brokers, tests from
memory.

The parts:
    model        Kind, Reason, Difference, NotCompared, Bounds, PartitionProof
    comparing    Comparison: the pass over both logs, which finds hunks
    judging      judge: the kind of each hunk
    report       document, verdict: the report of a flow
"""
