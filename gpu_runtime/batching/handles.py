"""Names of prefix features: who wants which observation behind which prefix contract."""

import hashlib

from gpu_runtime.batching.feature import VLAFeature

Handle = str

_DIGEST_BYTES = 20


def handle_of(tenant_id: str, prefix_hash: str, feature: VLAFeature) -> Handle:
    """The name of an observation's features behind one prefix contract, for one tenant."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for text in (tenant_id, prefix_hash, feature.instruction, str(feature.query_tokens)):
        digest.update(f"{len(text)}:{text}".encode())
    for image in feature.images:
        digest.update(f"{image.shape}".encode())
        digest.update(image.tobytes())
    return digest.hexdigest()
