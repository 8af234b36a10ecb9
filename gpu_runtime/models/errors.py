"""What can go wrong with a tenant's model, each under its own name and machine-readable code."""

from typing import ClassVar


class ModelError(Exception):
    """Base of every refusal below. ``code`` is stable and travels to the control plane as the job's reason."""

    code: ClassVar[str] = "model_error"


class HeadConfigurationError(ModelError, ValueError):
    """A head's specification contradicts the dataset or the backbone."""

    code = "head_configuration"


class FeatureMismatch(ModelError, ValueError):
    """Backbone features do not have the shape this head was built or fitted for."""

    code = "feature_mismatch"


class BatchMismatch(ModelError, ValueError):
    """A sample batch does not have the state or action shape the policy was built for."""

    code = "batch_mismatch"


class NotFitted(ModelError, RuntimeError):
    """The head needs statistics of the tenant's own features first; call ``fit``."""

    code = "not_fitted"


class NonFiniteLoss(ModelError, ArithmeticError):
    """The loss is NaN or infinite. Nothing was changed."""

    code = "non_finite_loss"


class NonFiniteGradient(ModelError, ArithmeticError):
    """A gradient is NaN or infinite. Nothing was changed."""

    code = "non_finite_gradient"


class CheckpointError(ModelError, ValueError):
    """A checkpoint folder is incomplete, altered or of another job."""

    code = "checkpoint_invalid"


class AdapterError(ModelError, ValueError):
    """Base of every refusal to import an exported adapter."""

    code = "adapter_invalid"


class ManifestInvalid(AdapterError):
    """manifest.json is missing, unreadable, altered or lacks a field."""

    code = "adapter_manifest_invalid"


class UnknownSchemaMajor(AdapterError):
    """The manifest is of a major version this code does not know."""

    code = "adapter_schema_unknown"


class BaseMismatch(AdapterError):
    """The adapter was trained on another base model, revision or precision."""

    code = "adapter_base_mismatch"


class PrefixMismatch(AdapterError):
    """The model-facing prefix (images, prompt, taps) differs from the one the adapter was trained behind."""

    code = "adapter_prefix_mismatch"


class StatisticsMissing(AdapterError):
    """The normalisation statistics are not in the folder."""

    code = "adapter_statistics_missing"


class StatisticsAltered(AdapterError):
    """The normalisation statistics are not the ones the policy was trained with."""

    code = "adapter_statistics_altered"


class FileAltered(AdapterError):
    """A file is missing or its bytes are not the ones the manifest lists."""

    code = "adapter_file_altered"


class TensorMismatch(AdapterError):
    """Tensor names or shapes do not match the head's configuration."""

    code = "adapter_tensor_mismatch"


class NotSafetensors(AdapterError):
    """A weight file is not in the safetensors format (the only one read)."""

    code = "adapter_not_safetensors"


class LoraUnsupported(AdapterError):
    """A PEFT configuration asks for something the runtime does not honour."""

    code = "lora_unsupported"
