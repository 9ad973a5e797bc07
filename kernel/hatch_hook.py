"""Has the kernel built before a wheel is: from a checkout as from a source distribution."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface[Any]):
    """Runs `kernel/build.py`; what that imports, and the jars of PySpark, pyproject.toml asks for."""

    def dependencies(self) -> list[str]:
        """A Java where there is none, beside what pyproject.toml names."""
        if os.environ.get("JAVA_HOME") or shutil.which("java"):
            return []
        return self.metadata.core.optional_dependencies["java"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # `make setup` builds it, and builds it anew when the sources change
        program = os.path.join(self.root, "kernel", "build.py")
        done = subprocess.run([sys.executable, program], cwd=self.root, check=False)
        if done.returncode != 0:
            raise RuntimeError("the Millstream kernel could not be built, see above")
