"""The order of a job's work: a pure function of its specification and the step it starts from."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_runtime.data.sampler import FrameSampler, Split, split_episodes
from gpu_runtime.data.samples import FrameRef
from gpu_runtime.protocol.specs import TrainingSpec
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training.work import Work

EVALUATION_FRAMES_MAX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SftPlan:
    """Which work comes when, and which frames belong to it.

    ``lengths``: frames per episode. ``fit_frames``: frames the head wants to see before its first step.
    ``evaluation``: the held-out frames of every evaluation.
    """

    training: TrainingSpec
    lengths: tuple[int, ...]
    split: Split
    fit_frames: int
    sampler: FrameSampler
    evaluation: tuple[FrameRef, ...]

    @classmethod
    def of(cls, training: TrainingSpec, lengths: tuple[int, ...], fit_frames: int) -> "SftPlan":
        """Set the held-out episodes aside; the same seed sets the same ones aside."""
        split = split_episodes(len(lengths), training.holdout_fraction, training.seed)
        return cls(
            training=training,
            lengths=lengths,
            split=split,
            fit_frames=fit_frames,
            sampler=FrameSampler(lengths, split.train, training.batch_size, training.seed),
            evaluation=tuple(_spread(_frames(split.holdout, lengths), EVALUATION_FRAMES_MAX)),
        )

    def works(self, *, start_step: int, needs_fit: bool) -> Iterator[Work]:
        """Everything still to do after ``start_step`` optimizer steps. An evaluation due there is done (again)."""
        if needs_fit:
            yield Work(purpose=Purpose.FIT, step=0)
        if start_step > 0:
            yield from self._evaluation(start_step)
        for step in range(start_step + 1, self.training.steps + 1):
            yield Work(purpose=Purpose.TRAIN, step=step)
            yield from self._evaluation(step)

    def frames(self, work: Work) -> list[FrameRef]:
        """The frames of one piece of work."""
        match work.purpose:
            case Purpose.TRAIN:
                return self.sampler.batch(work.step - 1)
            case Purpose.FIT:
                return _spread(_frames(self.split.train, self.lengths), self.fit_frames)
            case Purpose.EVALUATE:
                size = self.training.batch_size
                return list(self.evaluation[work.chunk * size : (work.chunk + 1) * size])

    def _evaluation(self, step: int) -> Iterator[Work]:
        if step % self.training.evaluate_every and step != self.training.steps:
            return
        chunks = -(-len(self.evaluation) // self.training.batch_size)
        for chunk in range(chunks):
            yield Work(purpose=Purpose.EVALUATE, step=step, chunk=chunk, chunks=chunks)


def _frames(episodes: tuple[int, ...], lengths: tuple[int, ...]) -> list[FrameRef]:
    return [FrameRef(episode, frame) for episode in episodes for frame in range(lengths[episode])]


def _spread(frames: list[FrameRef], most: int) -> list[FrameRef]:
    """At most ``most`` frames, evenly spaced, so that every episode and every phase of it is seen."""
    if len(frames) <= most:
        return frames
    return [frames[index * len(frames) // most] for index in range(most)]
