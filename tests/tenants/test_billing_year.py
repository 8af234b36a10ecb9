"""A small year of billing, closed month by month, every figure worked out twice. The large one is `bench_year`."""

import pytest

from tests.support.billing_year import play


@pytest.mark.slow
@pytest.mark.django_db
def test_a_year_of_usage_closes_with_every_difference_at_zero():
    year = play(seed=7, tenants=12, works_per_week=60)
    assert year.differences == 0
    assert year.invoices > 100
    assert year.prices == 36
    assert min(year.repeats, year.late, len(year.stopped)) > 0  # it has everything in it
