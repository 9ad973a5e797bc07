"""Test support: the driver for users' topologies.

They load PySpark on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.driver import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from millstream.testing import driver

        return getattr(driver, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
