"""The types of the fixtures `kernel_java` and `kernel_command` (tests/kernel/conftest.py)."""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["KernelCommand", "KernelJava"]


class KernelJava(Protocol):
    """`kernel_java("io.millstream.kernel.SomeMain", "its stdin", "an argument")` is what it wrote."""

    def __call__(
        self, main: str, stdin: str = "", *arguments: str, timeout: float = 60, heap: str = ""
    ) -> str: ...


class KernelCommand(Protocol):
    """`kernel_command("io.millstream.kernel.SomeMain", "an argument")` is a command."""

    def __call__(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]: ...
