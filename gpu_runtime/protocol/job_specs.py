"""What a tenant may ask for, of any kind: the union that API, OpenAPI, forms, client and runtime read."""

from typing import Annotated

from pydantic import Field

from gpu_runtime.protocol.policy_specs import EvaluationJobSpec, RlJobSpec, RolloutJobSpec
from gpu_runtime.protocol.specs import SftJobSpec

PolicyJobSpec = RlJobSpec | EvaluationJobSpec | RolloutJobSpec
"""Kinds that start from a policy; ``sft`` starts from a dataset."""

JobSpec = Annotated[SftJobSpec | RlJobSpec | EvaluationJobSpec | RolloutJobSpec, Field(discriminator="kind")]
