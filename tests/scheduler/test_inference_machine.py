"""Any order of events keeps the promises of queue and pins; and each promise, broken on purpose, is noticed."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from gpu_runtime.inference.policy_store import PolicyStore
from gpu_runtime.scheduler.errors import InferenceQueueFull
from gpu_runtime.scheduler.inference_queue import InferenceBatch, InferenceQueue
from gpu_runtime.scheduler.invariants import InvariantBroken
from gpu_runtime.scheduler.sessions import SessionLines
from tests.support.inference_machine import KEEP, LIMIT_TOKENS, LIMITS, WINDOW_US, InferenceMachine

TestInference = InferenceMachine.TestCase
TestInference.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)

HUNT = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


def queue_of(kind: type[InferenceQueue]) -> InferenceQueue:
    return kind(LIMITS, batch_limit_tokens=LIMIT_TOKENS, window_us=WINDOW_US, wait_us=0)


class StartsWhileBusy(InferenceQueue):
    def next_batch(self, now_us):
        batch = self._former.take(now_us=now_us)
        if batch is None:
            return None
        requests = tuple(self._requests[pick.request.request_id] for pick in batch.picks)
        return InferenceBatch(group_key=batch.group_key, requests=requests)


class OffersEveryRequest(InferenceQueue):
    """Forgets that requests of a session wait for each other."""

    def arrive(self, **fields):
        request = super().arrive(**fields)
        if request.request_id not in self._former.backlog:
            self._offer(request)
        return request

    def _end(self, request):
        self._former.discard(request.request_id)
        self._sessions.remove(request.session, request.request_id)
        del self._requests[request.request_id]


class JumpsTheLine(SessionLines):
    def add(self, session, request_id):
        super().add(session, request_id)
        line = self._lines[session]
        if len(line) > 2:
            line.insert(1, line.pop())


class LaterRequestFirst(InferenceQueue):
    def __init__(self, *arguments, **knobs):
        super().__init__(*arguments, **knobs)
        self._sessions = JumpsTheLine()


class NeverExpires(InferenceQueue):
    def expire(self, now_us):
        return ()


class ForgetsTheNext(InferenceQueue):
    """The next request of a session is not offered when the first has ended."""

    def _end(self, request):
        self._former.discard(request.request_id)
        self._sessions.remove(request.session, request.request_id)
        del self._requests[request.request_id]


class Unbounded(InferenceQueue):
    def _refuse_beyond_limits(self, session):
        return None


class RefusesTheLight(InferenceQueue):
    """A full queue refuses everybody, those without a single request too."""

    def _refuse_beyond_limits(self, session):
        if len(self._requests) >= LIMITS.total:
            raise InferenceQueueFull("full", reason="total_requests")
        super()._refuse_beyond_limits(session)


class FreesThePinned(PolicyStore):
    def _free(self, slot):
        for version in list(slot.versions)[: -self._keep]:
            del slot.versions[version]


class NeverFrees(PolicyStore):
    def _free(self, slot):
        return None


class ForgetsAPin(PolicyStore):
    """The first release of a version lets go of everybody's pin."""

    def unpin(self, pin):
        if pin.held:
            self._owners[pin].pins[pin.version] = 1
        super().unpin(pin)


class ServesTheNewest(PolicyStore):
    """Whoever asked for an older version gets the newest."""

    def pin(self, tenant_id, slot_id, version="latest"):
        super().unpin(super().pin(tenant_id, slot_id, version))
        return super().pin(tenant_id, slot_id)


class IgnoresTenants(PolicyStore):
    """Slots go by their name alone."""

    def pin(self, tenant_id, slot_id, version="latest"):
        return super().pin("a", slot_id, version)


QUEUES = [
    StartsWhileBusy,
    OffersEveryRequest,
    LaterRequestFirst,
    NeverExpires,
    ForgetsTheNext,
    Unbounded,
    RefusesTheLight,
]
STORES = [FreesThePinned, NeverFrees, ForgetsAPin, ServesTheNewest, IgnoresTenants]


@pytest.mark.parametrize("kind", QUEUES, ids=lambda kind: kind.__name__)
def test_a_queue_that_breaks_a_promise_is_caught(kind):
    class Machine(InferenceMachine):
        def make_queue(self):
            return queue_of(kind)

    with pytest.raises(InvariantBroken):
        run_state_machine_as_test(Machine, settings=HUNT)


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.__name__)
def test_a_store_of_versions_that_breaks_a_promise_is_caught(kind):
    class Machine(InferenceMachine):
        def make_store(self):
            return kind(keep=KEEP)

    with pytest.raises(InvariantBroken):
        run_state_machine_as_test(Machine, settings=HUNT)
