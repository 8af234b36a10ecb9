"""What a policy can do without, and what would do nothing for it: cameras, and updates of the base's text."""

from gpu_runtime.protocol.specs import OftHeadSpec, SftJobSpec

IMAGE_TAPS = ("vision", "merged")


def why_it_needs_cameras(spec: SftJobSpec) -> str | None:
    """Why this policy cannot do without a camera, and what would; None where it can."""
    head = spec.head
    if not spec.dataset.use_state:
        return "without cameras the policy must act on its state; allowed: use_state true"
    if isinstance(head, OftHeadSpec):
        if head.standardize:  # query features of words alone never vary: standardised they would all be 0
            return "without cameras query features do not vary; allowed: head.standardize false"
        return None
    if head.tap in IMAGE_TAPS:
        return f"head.tap {head.tap!r} reads images; allowed without cameras: layer:n"
    return None


def why_lora_is_useless(spec: SftJobSpec) -> str | None:
    """Why updates of the base's text would change nothing that the head reads; None where they do."""
    head = spec.head
    if isinstance(head, OftHeadSpec) or head.tap not in IMAGE_TAPS:
        return None
    return f"head.tap {head.tap!r} is read before the text layers that LoRA updates; allowed with it: layer:n"
