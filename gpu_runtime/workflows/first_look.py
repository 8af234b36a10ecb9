"""Before anything is played: policy and environment are compared on a first start, so that a misfit costs no step."""

import itertools
from dataclasses import dataclass

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.errors import EnvironmentLost, SimulatorMissing
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import SessionSpec
from gpu_runtime.models.policy import Policy
from gpu_runtime.protocol.schema import DatasetSchema
from gpu_runtime.workflows.environment_use import Used, UseTeller
from gpu_runtime.workflows.failures import failure_from, survive
from gpu_runtime.workflows.policy_fit import PolicyFit, matching
from gpu_runtime.workflows.ports import EnvironmentMeter, Teller
from gpu_runtime.workflows.waiting import Herald


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """``max_steps``: where a try is cut off, None: nowhere. ``feature``: what the policy is shown at a start."""

    schema: DatasetSchema
    max_steps: int | None
    feature: VLAFeature


async def look(
    pool: EnvironmentPool, session: SessionSpec, policy: Policy, *, seed: int, tell: Teller, meter: EnvironmentMeter
) -> FirstLook:
    """Start one try and take no step; a lost environment is looked at again.

    Raises EnvironmentLost when the third session in a row is lost; SimulatorError, SchemaMismatch included, at once.
    """
    for losses in itertools.count(1):
        try:
            return await _look_once(pool, session, policy, seed=seed, tell=tell, meter=meter)
        except EnvironmentLost as error:
            await survive(error, losses=losses, tell=tell, then="another one is looked at")
    raise AssertionError("the last loss was raised")


async def _look_once(
    pool: EnvironmentPool, session: SessionSpec, policy: Policy, *, seed: int, tell: Teller, meter: EnvironmentMeter
) -> FirstLook:
    herald, busy, reason = Herald(tell=tell), pool.make_meter(), None
    use = UseTeller(meter=meter, work="check", step=0, seats=1)
    try:
        with matching(policy, session.kind):
            opening = await pool.open(session, on_wait=herald.seats, busy=busy)
        async with opening as opened:
            fit = PolicyFit.of(policy, opened.schema, session.kind.cameras)
            (start,) = await opened.reset([seed])
            fit.check_start(start.observation)
            return FirstLook(schema=opened.schema, max_steps=opened.max_steps, feature=fit.feature(start.observation))
    except (EnvironmentLost, SimulatorMissing) as error:  # nobody pays for what there is not
        reason = failure_from(error).reason
        raise
    finally:
        await use.tell(Used(busy_us=busy.calls_us), reason=reason)
        await herald.close()
