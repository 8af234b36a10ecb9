"""Identifiers that cannot be swapped by accident."""

from typing import NewType

TenantId = NewType("TenantId", str)
JobId = NewType("JobId", str)
PartitionId = NewType("PartitionId", str)
SpanId = NewType("SpanId", str)
RequestId = NewType("RequestId", str)
