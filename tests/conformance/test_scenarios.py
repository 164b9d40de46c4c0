"""The scenarios of the lease over each kind of database that a service takes: their rules are theirs.

They are told in `tests/scenarios`, once, and played here again with another database under the services.
"""

from __future__ import annotations

from tests.scenarios.test_cancellation import TestCancelling
from tests.scenarios.test_effects import TestComplete, TestGuard, TestRunExclusive, effects
from tests.scenarios.test_endings import TestCallbacksThatRaise
from tests.scenarios.test_heartbeats import TestByHand
from tests.scenarios.test_interruptions import TestAcquire, far_async_service, far_service, proxy
from tests.scenarios.test_loss import TestLateCallbacks, TestLocalDeadline, TestRejectedRenewals
from tests.scenarios.test_outcomes import TestInsideTheCallback
from tests.scenarios.test_renewal import TestCallbacksThatTakeLong
from tests.scenarios.test_settling import TestCuts, TestRefusals, TestSilence
from tests.scenarios.test_waiting import TestWait

__all__ = [
    "TestAcquire",
    "TestByHand",
    "TestCallbacksThatRaise",
    "TestCallbacksThatTakeLong",
    "TestCancelling",
    "TestComplete",
    "TestCuts",
    "TestGuard",
    "TestInsideTheCallback",
    "TestLateCallbacks",
    "TestLocalDeadline",
    "TestRefusals",
    "TestRejectedRenewals",
    "TestRunExclusive",
    "TestSilence",
    "TestWait",
    "effects",
    "far_async_service",
    "far_service",
    "proxy",
]
