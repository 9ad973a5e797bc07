"""A child process that cannot outlive its parent, however the parent ends.

The parent holds the write end of a pipe and never writes. A small shell, which is the parent of the real
process, has a watcher that reads from the pipe: when the parent is gone (killed with -9 included) the read
ends, and the watcher kills. Nothing polls, and it needs only POSIX, so it works on both Linux and macOS;
Linux's own parent-death signal would not, and it fires when the *thread* that forked ends.

The shell has a session of its own, so Ctrl-C in the terminal reaches only the parent, which then decides in
which order things end.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from millstream import program_end
from millstream.permissions import umask_of_children

__all__ = ["SupervisedProcess"]

# $1: a directory to remove when the parent was killed, or nothing; then the command.
# The shell waits for the process itself, so its id cannot be reused before the watcher is gone.
_SUPERVISOR = """
exec 3<&0 </dev/null
scratch=$1
shift
"$@" 3<&- >&2 &
child=$!
echo "$child"
exec >&2
( read -r _ <&3; kill -KILL "$child"; exit 3 ) 2>/dev/null &
watcher=$!
exec 3<&-
wait "$child"
status=$?
kill "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
if [ $? -eq 3 ] && [ -n "$scratch" ]; then rm -rf -- "$scratch"; fi
exit "$status"
"""


class SupervisedProcess:
    """A running child; `pid` is its own process id, not the supervisor's."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_file: Path,
        environment: Mapping[str, str],
        scratch: Path | None = None,
    ) -> None:
        """Start it. Its output is appended to `log_file`; it reads nothing.

        Args:
            scratch: a directory to remove if the parent is killed, because no one else would then.

        Raises:
            OSError: the log file cannot be written, or there is no `/bin/sh`.
        """
        read_end, self._alive = os.pipe()
        try:
            with log_file.open("ab") as log:
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _SUPERVISOR, "millstream-supervisor", str(scratch or ""), *command],
                    stdin=read_end,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=dict(environment),
                    start_new_session=True,
                    umask=umask_of_children(),
                )
        except OSError:
            os.close(self._alive)
            raise
        finally:
            os.close(read_end)
        assert self._shell.stdout is not None
        with self._shell.stdout as answer:
            line = answer.readline()
        if not line.strip().isdigit():
            os.close(self._alive)
            raise OSError(f"the supervising shell did not start its child; its output: {line!r}")
        self.pid = int(line)
        program_end.close_in_child(self, partial(os.close, self._alive))

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 and the signal's number if a signal ended it."""
        return self._shell.poll()

    def wait_until_ended(self, timeout_s: float | None) -> bool:
        """Wait, without limit if None. Returns whether it has ended."""
        try:
            self._shell.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, *, patience_s: float) -> None:
        """Ask it to end, wait, and kill it if it has not ended; with no patience, kill it at once.
        Idempotent."""
        if patience_s > 0 and self.exit_code is None:
            self._send(signal.SIGTERM)
            self.wait_until_ended(patience_s)
        if self.exit_code is None:
            self._send(signal.SIGKILL)
        self._shell.wait()
        program_end.forget(self)
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def _send(self, number: signal.Signals) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return  # it ended by itself; the supervisor is about to report that
