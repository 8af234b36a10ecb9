"""One denoising step as a probability distribution, in our convention: time 0 is noise, time 1 is data.

Source: flow policies of pi-RL (RLinf), written there for time s = 1 - t and velocity u = -v. With d = 1 / K:

    data estimate    x - u s             ->  a = x + v (1 - t)
    noise estimate   x + u (1 - s)       ->  e = x - v t
    ODE mean         a (1 - (s - d)) + e (s - d)
                                         ->  a (t + d) + e (1 - t - d) = x + v d
    SDE mean         ... + e (s - d - g^2 d / (2 s))
                                         ->  x + v d - e g^2 d / (2 (1 - t))
    SDE std          g sqrt(d)
    g                level sqrt(s / (1 - s))  ->  level sqrt((1 - t) / t), where t = 0 is replaced by d in the
                                              denominator only

e / (1 - t) is minus the score of the marginal at t, so this is Euler's step of dx = (v + g^2 score / 2) dt + g dW,
whose marginals are those of the ODE. g^2 (1 - t)^-1 is written out below as level^2 / t, which is finite everywhere.

Shapes: M chunks, H horizon, A action dims.
"""

from torch import Tensor

from gpu_runtime.models.heads import flow
from gpu_runtime.models.heads.density import Normal


def sde_step(x_MHA: Tensor, velocity_MHA: Tensor, *, step_M: Tensor, level_M: Tensor, steps: int) -> Normal:
    """Step ``step_M`` (from 0) of ``steps`` of the SDE. Where the level is 0 the mean is Euler's, bit for bit.

    ``std`` is [M, 1, 1].
    """
    t = (step_M / steps)[:, None, None]
    level = level_M[:, None, None]
    denominator = t.clamp(min=1 / steps)  # only step 0 lies below
    noise_MHA = x_MHA - velocity_MHA * t
    mean_MHA = flow.euler_step(x_MHA, velocity_MHA, steps) - noise_MHA * (level.square() / (2 * steps * denominator))
    return Normal(mean=mean_MHA, std=level * ((1 - t) / (steps * denominator)).sqrt())
