"""What tests of the kernel's pure cores run: Java programs of `kernel/test`, without Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from types import ModuleType

import filelock
import pytest
from java_programs import KernelCommand, KernelJava

from millstream.java import find_java


@pytest.fixture(scope="session")
def kernel_command(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> KernelCommand:
    """The command of a main class of `kernel/test`, with the kernel, kafka-clients and Spark's jars.

    The programs are compiled once per run of the tests, whichever process comes first.
    """
    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):  # pytest-xdist: a folder per process, in one of the run's
        shared = shared.parent
    classes = shared / "kernel-test-classes"
    with filelock.FileLock(shared / "kernel-test-classes.lock"):
        if not classes.exists():
            compiling = shared / "kernel-test-classes.compiling"
            path = [builder.JAR, *builder.compile_path()]
            builder.compile_java(builder.TESTS, compiling, path)
            compiling.rename(classes)
    # A directory's jars in one word: a core does not use them, and what is not used is not opened.
    spark = builder.spark_jars()[0].parent / "*"
    class_path = ":".join(map(str, [classes, builder.JAR, builder.kafka_clients(), spark]))
    java = [str(find_java().java), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]

    def command(main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        return [*java[:-2], *options, *java[-2:], main, *arguments]

    return command


@pytest.fixture(scope="session")
def kernel_java(kernel_command: KernelCommand) -> KernelJava:
    """Runs a main class of `kernel/test` to its end."""

    def run(main: str, stdin: str = "", *arguments: str, timeout: float = 60, heap: str = "") -> str:
        command = kernel_command(main, *arguments, options=[f"-Xmx{heap}"] if heap else [])
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, f"{main} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
