"""One frame's features in two bytes a number, or three where two would round, or four where they overflow."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpu_runtime.features.rows import ALIGNMENT, HALF_MAX, Entry

CPU = torch.device("cpu")
TAPS = (("merged", 5), ("query", 31), ("layer:1", 7))
NUMBERS = st.floats(-HALF_MAX, HALF_MAX, width=32)


def stored(value_LD: torch.Tensor, dtype: torch.dtype = torch.float16) -> tuple[Entry, torch.Tensor]:
    entry, given = Entry.of({"tap": value_LD}, dtype)
    found = entry.rows(CPU)
    assert torch.equal(given["tap"], found["tap"]), "what is given back at once is not what is found later"
    return entry, found["tap"]


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 40)), elements=NUMBERS))
def test_a_number_is_kept_to_nineteen_bits_and_tiny_ones_to_two_to_the_minus_thirtythree(value: np.ndarray) -> None:
    value_LD = torch.from_numpy(value)
    _, found_LD = stored(value_LD)
    assert bool(((found_LD - value_LD).abs() <= value_LD.abs() * 2.0**-18.9 + 2.0**-32.9).all())


@given(arrays(np.float32, (3, 17), elements=NUMBERS))
def test_what_was_rounded_once_is_never_rounded_again(value: np.ndarray) -> None:
    half_LD = torch.from_numpy(value).half().float()
    entry, found_LD = stored(half_LD)
    assert torch.equal(found_LD, half_LD)
    assert [part.fine_start for part in entry.parts] == [None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_base_in_two_bytes_takes_two_bytes_and_a_single_precision_one_three(dtype: torch.dtype) -> None:
    value_LD = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    low_LD = value_LD.to(dtype)
    entry, found_LD = stored(low_LD)
    assert torch.equal(found_LD, low_LD.float())
    assert entry.size == 2 * value_LD.numel()
    assert stored(value_LD)[0].size == 3 * value_LD.numel()
    assert stored(value_LD, torch.float32)[0].size == 4 * value_LD.numel()


def test_planes_of_several_taps_lie_apart_and_aligned() -> None:
    rows = {name: torch.randn(3, width, generator=torch.Generator().manual_seed(width)) for name, width in TAPS}
    rows["query"] = rows["query"].half().float()
    entry, _ = Entry.of(rows, torch.float16)
    places = [(part.start, part.start + part.size) for part in entry.parts]
    places += [(part.fine_start, part.end) for part in entry.parts if part.fine_start is not None]
    assert all(start % ALIGNMENT == 0 for start, _ in places)
    assert len(places) == 5, "one tap needs no fine bytes"
    ends = sorted(places)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert ends[-1][1] <= entry.size < ends[-1][1] + ALIGNMENT
    assert all(torch.allclose(entry.rows(CPU)[name], rows[name], rtol=2e-6) for name in rows)
