"""Device time: what a step really took, in integer microseconds."""

import time

import torch


class DeviceClock:
    """Reads the time after everything queued on ``device`` has finished."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter_ns()

    def worked_ns(self) -> int:
        """Nanoseconds of work, to compare two ways of doing the same: on a CPU its own time, whoever else wants it."""
        if self._device.type == "cuda":
            return self.now_ns()
        return time.thread_time_ns() if torch.get_num_threads() == 1 else time.process_time_ns()


def unix_us() -> int:
    """Unix time in microseconds, for humans and invoices; never used to measure."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Microseconds that never go back, for leases and waits."""
    return time.monotonic_ns() // 1000
