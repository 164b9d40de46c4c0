"""Time as values: the local deadline and the pauses between attempts (C3.6, C5.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.trust import Backoff, TrustWindow

LEASES_S = st.floats(0.003, 2**53 / 1000)
INSTANTS_S = st.floats(0, 1e9)


@pytest.mark.parametrize(
    ("lease_s", "deadline_s"),
    [(0.3, 0.285), (1.0, 0.95), (19.9, 18.905), (20.0, 19.0), (21.0, 20.0), (900.0, 899.0), (86_400.0, 86_399.0)],
)
def test_the_margin_is_the_smaller_of_5_percent_and_1_s(lease_s: float, deadline_s: float) -> None:
    """C3.6."""
    assert TrustWindow(lease_s, 100.0).deadline_boot_s == pytest.approx(100.0 + deadline_s)


@given(LEASES_S, INSTANTS_S, st.floats(0, 1e6))
def test_it_is_over_from_its_deadline_on(lease_s: float, sent_boot_s: float, later_s: float) -> None:
    """C3.6: never before, and always before the lease itself has passed."""
    window = TrustWindow(lease_s, sent_boot_s)
    assert sent_boot_s <= window.deadline_boot_s <= sent_boot_s + lease_s
    assert window.is_over(window.deadline_boot_s)
    assert window.is_over(window.deadline_boot_s + later_s)
    assert not window.is_over(min(sent_boot_s, window.deadline_boot_s - 1e-3))
    assert window.remaining_s(window.deadline_boot_s) == 0
    assert (window.remaining_s(sent_boot_s + later_s) <= 0) == window.is_over(sent_boot_s + later_s)


@given(LEASES_S, st.lists(INSTANTS_S, min_size=1))
def test_a_renewal_counts_from_its_sending_and_an_older_one_changes_nothing(lease_s: float, sent: list[float]) -> None:
    """C3.6: answers may come in any order; the latest sending decides, and the length stays."""
    window = TrustWindow(lease_s, sent[0])
    for sent_boot_s in sent[1:]:
        window = window.renewed(sent_boot_s)
    assert window == TrustWindow(lease_s, max(sent))


def test_pauses_double_up_to_a_cap() -> None:
    """C5.2 (underway#91): no hot loop."""
    backoff = Backoff(first_s=0.05, cap_s=2.0)
    whole = [backoff.delay_s(n, 1.0) for n in range(1, 9)]
    assert whole == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True), st.floats(0.001, 1), st.floats(1, 60))
def test_pauses_are_spread_over_their_upper_half(failures: int, spread: float, first_s: float, cap_s: float) -> None:
    """C5.2: however many failures, a pause lies between half of its full length and the whole; none is zero."""
    backoff = Backoff(first_s, cap_s)
    full_s = backoff.delay_s(failures, 1.0)
    assert 0 < full_s <= cap_s
    assert full_s / 2 <= backoff.delay_s(failures, spread) <= full_s
    assert backoff.delay_s(failures + 1, spread) >= backoff.delay_s(failures, spread)
