"""The type of the fixture `kernel_java` (tests/kernel/conftest.py)."""

from typing import Protocol

__all__ = ["KernelJava"]


class KernelJava(Protocol):
    """`kernel_java("io.millstream.kernel.SomeMain", "its stdin", "an argument")` is what it wrote."""

    def __call__(
        self, main: str, stdin: str = "", *arguments: str, timeout: float = 60, heap: str = ""
    ) -> str: ...
