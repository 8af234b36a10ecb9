"""Which bytes a player's header asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.ranges import ByteRange, Unsatisfiable, parse_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-3", (0, 3)),
        ("bytes=4-", (4, 9)),
        ("bytes=0-", (0, 9)),
        ("bytes=-3", (7, 9)),
        ("bytes=-99", (0, 9)),
        ("bytes=5-99", (5, 9)),
        ("bytes= 2-2 ", (2, 2)),
    ],
)
def test_one_range_is_understood(header: str, expected: tuple[int, int]) -> None:
    found = parse_range(header, 10)
    assert found is not None
    assert (found.first, found.last) == expected
    assert found.length == expected[1] - expected[0] + 1
    assert found.content_range(10) == f"bytes {expected[0]}-{expected[1]}/10"


@pytest.mark.parametrize(
    "header", [None, "", "bytes=", "bytes=-", "bytes=3-1", "items=0-3", "bytes=0-1,4-5", "bytes=a-b", "bytes=1"]
)
def test_what_is_malformed_of_another_unit_or_several_is_ignored(header: str | None) -> None:
    assert parse_range(header, 10) is None


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=-0", 10), ("bytes=0-", 0)]
)
def test_a_range_without_a_byte_of_the_file_is_told_apart(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        parse_range(header, size)


@given(size=st.integers(1, 50), first=st.integers(0, 60), last=st.integers(0, 60))
def test_a_range_gives_the_bytes_that_slicing_gives(size: int, first: int, last: int) -> None:
    content = bytes(range(size))
    try:
        found = parse_range(f"bytes={first}-{last}", size)
    except Unsatisfiable:
        assert first >= size
        return
    if found is None:
        assert last < first
    else:
        assert isinstance(found, ByteRange)
        assert content[found.first : found.first + found.length] == content[first : last + 1]
