"""What the inference service measured about itself: it is the service's Watch."""

from gpu_runtime.inference.service import InferenceService
from gpu_runtime.protocol.messages import ServiceStatus
from gpu_runtime.services.latencies import Latencies
from gpu_runtime.services.utilization import Utilization
from gpu_runtime.store.durability import Durability
from gpu_runtime.training.clock import monotonic_us


class InferenceWatch:
    """Hears of every step and of every answer, see ``inference.service.Watch``."""

    def __init__(self, *, window_us: int) -> None:
        self.utilization = Utilization(now_us=monotonic_us(), window_us=window_us)
        self._latencies = Latencies(window_us)

    def begin(self, now_us: int) -> None:
        """A step starts."""
        self.utilization.begin(now_us)

    def end(self, now_us: int, group_size: int) -> None:
        """The step is over."""
        self.utilization.end(now_us, group_size)

    def answered(self, now_us: int, taken_us: int) -> None:
        """A request got its actions, ``taken_us`` after it was admitted."""
        self._latencies.add(now_us, taken_us)

    def status(self, service: InferenceService, durability: Durability, *, stopping: bool) -> ServiceStatus:
        """Over the trailing window; the latency includes the wait for a turn."""
        now_us, problem = monotonic_us(), durability.problem
        state = "stopped" if stopping or problem else ("busy" if self.utilization.busy else "idle")
        return ServiceStatus(
            service="inference",
            state=state,
            reason=problem.code if problem else None,
            busy_share=self.utilization.busy_share(now_us),
            window_s=self.utilization.window_us(now_us) / 1e6,
            queue_depth=service.queue.depth(),
            group_size_mean=self.utilization.group_size_mean(now_us),
            latency_p95_ms=self._latencies.quantile_ms(now_us, 0.95),
        )
