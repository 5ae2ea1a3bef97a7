"""The result of a part whose clusters failed."""

from twinlog.errors import TwinlogError
from twinlog.verify.model import Bounds, PartitionProof


def first_of(failures: BaseExceptionGroup[TwinlogError]) -> TwinlogError:
    """The first leaf of an exception group; it caused the cancellation of the others."""
    first = failures.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


def failed_proof(bounds: Bounds, error: TwinlogError) -> PartitionProof:
    """Nothing of the part could be compared."""
    proof = PartitionProof(
        source=bounds.source,
        target=bounds.target,
        source_from=bounds.source_start,
        source_to=bounds.source_start,
        target_from=bounds.target_start,
        target_to=bounds.target_start,
    )
    proof.not_read(error, goal=bounds.source_goal)
    return proof
