"""Who hears of an evaluation while it is under way: the command line shows progress, a job writes everything down."""

from typing import Protocol

from gpu_runtime.environments.seats import SeatWait
from gpu_runtime.protocol.base import Message
from gpu_runtime.workflows.evaluation_result import EpisodeRecord
from gpu_runtime.workflows.ports import EnvironmentUse


class Played(Message):
    """An episode that has ended, with every single prediction's time (seconds) and group size.

    ``record.video`` is a file of the film, if there is one. ``instruction`` is what the policy was told.
    """

    record: EpisodeRecord
    outcome: str
    instruction: str | None
    predict_s: tuple[float, ...]
    group_sizes: tuple[int, ...]


class Witness(Protocol):
    """Calls come from the evaluation, on the event loop."""

    def waits(self, wait: SeatWait) -> None:
        """There is no seat at present; told again at every change."""
        ...

    async def used(self, use: EnvironmentUse) -> None:
        """What environments did, once each; told before the episode it was for has ended."""
        ...

    async def ended(self, played: Played) -> EpisodeRecord:
        """The record as it shall stand in the result."""
        ...


class Unheard:
    """Nobody listens, and nobody pays."""

    def waits(self, wait: SeatWait) -> None:
        """Waiting is all there is to do."""

    async def used(self, use: EnvironmentUse) -> None:
        """One user, one machine."""

    async def ended(self, played: Played) -> EpisodeRecord:
        """As it is."""
        return played.record
