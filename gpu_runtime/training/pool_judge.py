"""Stacked or one by one: decided by what was measured on this machine, never by a guess.

The first batches of a signature run both ways: where numbers differ, the loop it is for good; where they agree, the
faster way stays. The results are the same either way, so a decision never shows in a tenant's numbers.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

# a fresh head's residual branches are zero: only its second step moves everything; and fresh memory costs page faults
COMPARED_STEPS = 4
SIGNATURES_KEPT = 1024


class Way(StrEnum):
    """How the forward and backward of a bucket run."""

    BOTH = "both"  # one by one, and stacked to be compared
    LOOP = "loop"
    STACKED = "stacked"


@dataclass(slots=True)
class _Evidence:
    equal: bool = True
    loop_ns: list[int] = field(default_factory=list)
    stacked_ns: list[int] = field(default_factory=list)

    def way(self) -> Way:
        if not self.equal:
            return Way.LOOP
        if len(self.loop_ns) < COMPARED_STEPS:
            return Way.BOTH
        # the shortest counts: a shared machine only ever adds
        return Way.STACKED if min(self.stacked_ns) < min(self.loop_ns) else Way.LOOP


class Judge:
    """Keeps the evidence by signature; the least recently used goes first."""

    def __init__(self) -> None:
        self._evidence: OrderedDict[Hashable, _Evidence] = OrderedDict()

    def way(self, signature: Hashable) -> Way:
        """What to do with a bucket of this signature now."""
        return self._of(signature).way()

    def compared(self, signature: Hashable, *, equal: bool, loop_ns: int, stacked_ns: int) -> None:
        """Both ways were run on one batch; nanoseconds of work, not of waiting."""
        evidence = self._of(signature)
        evidence.equal = evidence.equal and equal
        evidence.loop_ns.append(loop_ns)
        evidence.stacked_ns.append(stacked_ns)

    def refuse(self, signature: Hashable) -> None:
        """It could not be stacked, for want of memory for instance."""
        self._of(signature).equal = False

    def _of(self, signature: Hashable) -> _Evidence:
        evidence = self._evidence.setdefault(signature, _Evidence())
        self._evidence.move_to_end(signature)
        if len(self._evidence) > SIGNATURES_KEPT:
            self._evidence.popitem(last=False)
        return evidence
