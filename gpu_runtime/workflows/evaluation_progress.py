"""The live curves of an evaluation job: running figures over the episodes that have ended, in the order they did."""

from dataclasses import dataclass, field

import numpy as np

from gpu_runtime.protocol.messages import MetricsRecorded
from gpu_runtime.workflows.evaluation_result import Cause
from gpu_runtime.workflows.evaluation_witness import Played


@dataclass(slots=True)
class EvaluationProgress:
    """A pure function of the episodes it was given: told again after a restart, it says the same."""

    ended: int = 0
    _successes: int = field(init=False, default=0)
    _counted: int = field(init=False, default=0)
    _played: int = field(init=False, default=0)  # to their end
    _return_sum: float = field(init=False, default=0.0)
    _steps_sum: int = field(init=False, default=0)

    def add(self, played: Played) -> MetricsRecorded:
        """One more; the step is the number of episodes that have ended. Means are of those played to their end."""
        record = played.record
        self.ended += 1
        if record.cause is not Cause.SOLVED_AT_RESET:
            self._counted += 1
            self._successes += record.success_once
        if record.cause not in (Cause.SOLVED_AT_RESET, Cause.ERROR):
            self._played += 1
            self._return_sum += record.return_
            self._steps_sum += record.steps
        ended = {"eval/episodes": float(self.ended), "eval/counted": float(self._counted)}
        values = ended | self._means() | _predictions(played)
        return MetricsRecorded(step=self.ended, values=values)

    def _means(self) -> dict[str, float]:
        values = {"eval/success_rate": self._successes / self._counted} if self._counted else {}
        if self._played:
            values["eval/return"] = self._return_sum / self._played
            values["eval/episode_steps"] = self._steps_sum / self._played
        return values


def _predictions(played: Played) -> dict[str, float]:
    if not played.predict_s:
        return {}
    return {
        "service/predict_p95_ms": float(np.quantile(played.predict_s, 0.95)) * 1000,
        "service/predict_group_size": float(np.mean(played.group_sizes)),
    }
