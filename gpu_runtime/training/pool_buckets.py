"""Which heads of a step can share a forward, and the stacks they live in from step to step."""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from gpu_runtime.models.heads.base import Head
from gpu_runtime.models.slots import Prepared, Slot
from gpu_runtime.models.stacked.stack import HeadStack
from gpu_runtime.training.trainer import Learner

STACKS_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One tenant's step that is prepared and must be finished or abandoned."""

    learner: Learner
    slot: Slot
    prepared: Prepared

    @property
    def head(self) -> Head:
        return self.slot.policy.head

    @property
    def key(self) -> Hashable:
        """Equal for heads of one architecture with batches of one shape on one device."""
        shape = self.head.shape
        widths = tuple(sorted(shape.feature_widths.items()))
        sizes = (shape.action_dim, shape.state_dim, widths, self.prepared.inputs.signature)
        return (self.slot.spec.head.model_dump_json(), sizes, str(self.slot.policy.device))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bucket:
    """Entries of one key. ``signature`` says how many they are as well: what is fast for eight need not be for two."""

    key: Hashable
    entries: tuple[Entry, ...]

    @property
    def signature(self) -> Hashable:
        return (self.key, len(self.entries))

    @property
    def stackable(self) -> bool:
        return len(self.entries) > 1 and self.entries[0].head.stackable


def buckets_of(entries: Iterable[Entry]) -> list[Bucket]:
    """Entries by key, those of a bucket in an order that is theirs and not the group's."""
    found: dict[Hashable, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.key].append(entry)
    return [
        Bucket(key=key, entries=tuple(sorted(same, key=lambda entry: id(entry.slot)))) for key, same in found.items()
    ]


class Stacks:
    """One stack for each key; rebuilt when other heads come, freed when one of its heads is gone."""

    def __init__(self) -> None:
        self._stacks: OrderedDict[Hashable, HeadStack] = OrderedDict()

    def of(self, bucket: Bucket) -> HeadStack:
        """The stack in which the heads of this bucket live, in its order."""
        heads = [entry.head for entry in bucket.entries]
        stack = self._stacks.get(bucket.key)
        if stack is None or not stack.holds(heads):
            self._release(bucket.key, keep=heads)
            flats = [entry.slot.weights.groups for entry in bucket.entries]
            stack = self._stacks[bucket.key] = HeadStack(heads, flats)
        self._stacks.move_to_end(bucket.key)
        if len(self._stacks) > STACKS_KEPT:
            self._release(next(iter(self._stacks)))
        return stack

    def sweep(self) -> None:
        """Free the stacks of jobs that are no longer mounted."""
        for key in [key for key, stack in self._stacks.items() if stack.orphaned]:
            self._release(key)

    def drop(self, bucket: Bucket) -> None:
        """Give the heads of a bucket tensors of their own again."""
        self._release(bucket.key)

    def _release(self, key: Hashable, keep: Sequence[Head] = ()) -> None:
        stack = self._stacks.pop(key, None)
        if stack is not None:
            stack.release(keep)
