"""The files of checkpoints through Hadoop's FileSystem, as Spark accesses them: s3a://, hdfs://, or a path.

A checkpoint is claimed (design D5) wherever Spark keeps it, with Spark's credentials and settings for that
place. So this goes through the session's JVM and has no file systems of its own. Each call is a few calls of
py4j, a millisecond each on a local disk.

A claim requires two things of the file system: `create_file` and `rename` of a directory must be atomic.
Local disks and HDFS guarantee both. Object stores have no rename; for them the kernel creates and replaces
objects conditionally, for `ObjectCheckpointFiles`. `locations.py` chooses between the two by the scheme.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from millstream.errors import ConfigException, SetupException, StreamsException, TaskMigratedException
from millstream.locations import ClaimKind, kind_of
from millstream.ports import FENCE
from millstream.spark.jvm.java_names import java_class
from millstream.spark.jvm.kernel_jar import S3A
from millstream.spark.run.failures import first_line, without_repetition

__all__ = ["HadoopCheckpointFiles", "ObjectCheckpointFiles", "check_location", "checkpoint_files", "tried"]

_KERNEL = "io.millstream.kernel.files.ObjectFiles"
_WRITERS = 4
_AT_ONCE = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.connection.establish.timeout": "5s",
}
"""For the first access to a store. With Hadoop's own timeouts, which suit a running query, a wrong address
takes minutes to show."""
_LOGS = ("offsets", "commits")
_EXISTS = ("FileAlreadyExistsException", "ParentNotDirectoryException")


def checkpoint_files(
    spark: SparkSession, root: str, options: Mapping[str, str] | None = None
) -> HadoopCheckpointFiles:
    """The files below a root, by what its file system can do. Raises what their constructors raise."""
    made = ObjectCheckpointFiles if kind_of(root) is ClaimKind.OBJECTS else HadoopCheckpointFiles
    return made(spark, root, options)


def check_location(spark: SparkSession, location: str) -> None:
    """Check that exactly one of several clients that create the same file wins, whatever the location
    promises.

    Raises:
        ConfigException: several of them win.
        SetupException: this session does not know the location's file system.
        StreamsException: the location cannot be written or reached.
    """
    files = checkpoint_files(spark, location, _AT_ONCE)
    name = f".check-{uuid.uuid4().hex}"
    try:
        files.read(name)  # is it there at all?
        won, again = tried(files, name)
    finally:
        files.close()
    if won == 1 and not again:
        return
    raise ConfigException(
        f"checkpoint.location '{location}' lets several clients create the same file: of {_WRITERS} that "
        f"tried at once, {won} succeeded. Two clients could both continue with one checkpoint. "
        + (
            "The store ignores conditional writes (If-None-Match), as older versions of several stores do: "
            "use a newer one, or a file system that all clients reach"
            if kind_of(location) is ClaimKind.OBJECTS
            else "Use a file system that creates files exclusively"
        )
    )


def tried(files: Any, name: str) -> tuple[int, bool]:
    """How many of some writers created a file, and whether one more did. No file is left behind, if the
    location lets us delete it.
    """
    try:
        tried = files.winners(name, _WRITERS), files.create_file(name)
    except BaseException:
        with suppress(StreamsException):  # what went wrong first says more
            files.delete(name)
        raise
    files.delete(name)
    return tried


class HadoopCheckpointFiles:
    """`ports.CheckpointFiles` on the file system that a root's URI names."""

    def __init__(self, spark: SparkSession, root: str, options: Mapping[str, str] | None = None) -> None:
        """Look up the file system.

        Args:
            options: create a separate file system, with these options over Hadoop's; `close` it.

        Raises:
            StreamsException: Hadoop has none for the root's scheme, or refuses.
        """
        jvm: Any = spark._jvm
        self._root = root.rstrip("/") or "/"
        self._jvm = jvm
        self._path: Any = java_class(jvm, "org.apache.hadoop.fs.Path")
        try:
            conf = spark._jsparkSession.sessionState().newHadoopConf()
            for name, value in (options or {}).items():
                conf.set(name, value)
            at = self._path(self._root)
            system = java_class(jvm, "org.apache.hadoop.fs.FileSystem")
            self._fs: Any = (
                at.getFileSystem(conf) if options is None else system.newInstance(at.toUri(), conf)
            )
        except Py4JJavaError as error:
            raise self._failed("opened", "", error) from error

    def close(self) -> None:
        """Close a file system that was created with options."""
        self._fs.close()

    def list(self, path: str = "") -> dict[str, bool]:
        """The names in a directory, and whether each is a directory itself; empty if there is none."""
        try:
            found = self._fs.listStatus(self._at(path))
            return {status.getPath().getName(): bool(status.isDirectory()) for status in found}
        except Py4JJavaError as error:
            if _is(error, "FileNotFoundException"):
                return {}
            raise self._failed("listed", path, error) from error

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        try:
            return bool(self._fs.exists(self._at(path)))
        except Py4JJavaError as error:
            raise self._failed("looked for", path, error) from error

    def make_directories(self, path: str) -> None:
        """Create a directory with its parents. An existing one is left as it is."""
        try:
            made = self._fs.mkdirs(self._at(path))
        except Py4JJavaError as error:
            raise self._failed("made", path, error) from error
        if not made:
            raise StreamsException(f"checkpoint directory '{self._name(path)}' could not be created")

    def rename(self, old: str, new: str) -> bool:
        """Rename a file or a directory; `new`'s parent directory is created. False: `old` does not exist."""
        try:
            # Hadoop would move a directory into an existing one, under its old name.
            if self._fs.exists(self._at(new)):
                raise StreamsException(
                    f"checkpoint '{self._name(old)}' could not be renamed: '{self._name(new)}' already exists"
                )
            if not self._fs.exists(self._at(old)):
                return False
            if "/" in new:
                self.make_directories(new.rpartition("/")[0])
            if self._fs.rename(self._at(old), self._at(new)):
                return True
            if not self._fs.exists(self._at(old)):
                return False  # another client was quicker
        except Py4JJavaError as error:
            if _is(error, "FileNotFoundException"):
                return False
            raise self._failed("renamed", old, error) from error
        raise StreamsException(
            f"checkpoint '{self._name(old)}' could not be renamed to '{self._name(new)}': the file system "
            "refused and gave no reason; check that this client may write there"
        )

    def create_file(self, path: str) -> bool:
        """Create an empty file and its directory. False: something of that name already exists."""
        try:
            self._fs.create(self._at(path), False).close()
        except Py4JJavaError as error:
            # Hadoop raises the same exception for a file in place of the directory.
            if (_is(error, *_EXISTS) and not self._is_below_a_file(path)) or self.exists(path):
                return False
            raise self._failed("made", path, error) from error
        return True

    def copy(self, old: str, new: str) -> None:
        """Copy a directory with everything in it."""
        try:
            conf = self._fs.getConf()
            util = java_class(self._jvm, "org.apache.hadoop.fs.FileUtil")
            if util.copy(self._fs, self._at(old), self._fs, self._at(new), False, conf):
                return
        except Py4JJavaError as error:
            raise self._failed("copied", old, error) from error
        raise StreamsException(f"checkpoint '{self._name(old)}' could not be copied to '{self._name(new)}'")

    def winners(self, path: str, writers: int) -> int:
        """How many of several writers, one after the other, succeed in creating the same file."""
        return sum(self.create_file(path) for _ in range(writers))

    def delete(self, path: str) -> None:
        """Delete a path with everything in it. Does nothing if it does not exist."""
        try:
            self._fs.delete(self._at(path), True)
        except Py4JJavaError as error:
            raise self._failed("deleted", path, error) from error

    def read(self, path: str) -> bytes | None:
        """A file's content, or None if there is no such file."""
        try:
            stream = self._fs.open(self._at(path))
        except Py4JJavaError as error:
            if _is(error, "FileNotFoundException"):
                return None
            raise self._failed("read", path, error) from error
        try:
            return bytes(java_class(self._jvm, "org.apache.commons.io.IOUtils").toByteArray(stream))
        except Py4JJavaError as error:
            raise self._failed("read", path, error) from error
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        """Replace a file's content as a whole; its directory is created."""
        draft = f"{path}.{uuid.uuid4().hex}.tmp"
        target = self._at(path)
        try:
            # Hadoop would move the draft into an existing directory, and report success.
            if self._fs.exists(target) and self._fs.getFileStatus(target).isDirectory():
                name = self._name(path)
                raise StreamsException(f"checkpoint file '{name}' could not be written: it is a directory")
            stream = self._fs.create(self._at(draft), True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
            if not self._fs.rename(self._at(draft), target):
                # Some file systems do not rename onto an existing file.
                self._fs.delete(target, False)
                if not self._fs.rename(self._at(draft), target):
                    raise StreamsException(f"checkpoint file '{self._name(path)}' could not be replaced")
        except Py4JJavaError as error:
            raise self._failed("written", path, error) from error

    def _is_below_a_file(self, path: str) -> bool:
        above = self._at(path).getParent()
        try:
            return bool(self._fs.exists(above)) and bool(self._fs.getFileStatus(above).isFile())
        except Py4JJavaError as error:
            raise self._failed("looked for", path, error) from error

    def _at(self, path: str) -> Any:
        return self._path(self._name(path))

    def _name(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    def _failed(self, what: str, path: str, error: Py4JJavaError) -> StreamsException:
        said = without_repetition(first_line(str(error.java_exception.toString())))
        return StreamsException(
            f"checkpoint file '{self._name(path)}' could not be {what}: {said}; check checkpoint.location, "
            "and that this client may write there"
        )


class ObjectCheckpointFiles(HadoopCheckpointFiles):
    """`ports.ObjectFiles` on an object store that a root's URI names."""

    def __init__(self, spark: SparkSession, root: str, options: Mapping[str, str] | None = None) -> None:
        """Look up the store.

        Args:
            options: as for other file systems.

        Raises:
            SetupException: the session has no S3A.
            StreamsException: Hadoop refuses.
        """
        loader = java_class(spark._jvm, "java.lang.Thread").currentThread().getContextClassLoader()
        try:
            java_class(spark._jvm, "java.lang.Class").forName(S3A, False, loader)
        except Py4JJavaError as error:
            raise SetupException(
                f"this Spark session (version {spark.version}) has no S3A, Hadoop's file system for S3, "
                f"which '{root}' needs. Let Millstream start Spark: KafkaStreams(topology, config) without a "
                "session, as the first client of its process; or start yours with the same jars:\n"
                "  from millstream.jars import ensure_jars, object_store_set\n"
                "  jars = ensure_jars(object_store_set())\n"
                "  SparkSession.builder.config('spark.jars', ','.join(map(str, jars))).getOrCreate()"
            ) from error
        super().__init__(spark, root, options)
        self._objects: Any = java_class(self._jvm, _KERNEL)

    def create(self, path: str, content: bytes) -> bool:
        """Create a file with this content. False: one of that name exists, with other content."""
        try:
            return bool(self._objects.create(self._fs, self._at(path), bytearray(content)))
        except Py4JJavaError as error:
            raise self._failed("made", path, error) from error

    def create_file(self, path: str) -> bool:
        return self.create(path, b"")

    def winners(self, path: str, writers: int) -> int:
        """How many of several writers succeed in creating the same file at the same moment."""
        try:
            return int(self._objects.winners(self._fs, self._at(path), writers))
        except Py4JJavaError as error:
            raise self._failed("made", path, error) from error

    def write(self, path: str, content: bytes) -> None:
        """Replace a file's content as a whole.

        Raises:
            TaskMigratedException: it belongs to a checkpoint's log, and another client has put a fence there.
        """
        try:
            if not _is_of_a_log(path):
                self._objects.put(self._fs, self._at(path), bytearray(content))
                return
            done = self._objects.replace(self._fs, self._at(path), bytearray(content), bytearray(FENCE))
        except Py4JJavaError as error:
            raise self._failed("written", path, error) from error
        if not done:
            raise self._migrated(path)

    def _migrated(self, path: str) -> TaskMigratedException:
        return TaskMigratedException(
            f"'{self._name(path)}' can no longer be written by this client: another one has claimed the "
            "checkpoint"
        )

    def copy(self, old: str, new: str) -> None:
        """Copy a directory with everything in it except fences. Does nothing if it does not exist."""
        try:
            self._objects.copy(self._fs, self._at(old), self._at(new), bytearray(FENCE))
        except Py4JJavaError as error:
            raise self._failed("copied", old, error) from error

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with everything in it except fences. Does nothing if it does not
        exist.

        Raises:
            TaskMigratedException: it belongs to a checkpoint's log, and another client has put a fence there.
        """
        if _is_of_a_log(path) and self.read(path) == FENCE:
            # An existing file that is no fence cannot become one: only a free name is fenced.
            raise self._migrated(path)
        try:
            at = self._at(path)
            if not self._fs.exists(at):
                return
            if self._fs.getFileStatus(at).isDirectory():
                self._objects.clear(self._fs, at, bytearray(FENCE))
            else:
                self._fs.delete(at, False)
        except Py4JJavaError as error:
            raise self._failed("deleted", path, error) from error

    def remove(self, path: str) -> None:
        """Delete a file or a directory, fences included. Does nothing if it does not exist."""
        super().delete(path)

    def rename(self, old: str, new: str) -> bool:
        raise StreamsException(f"'{self._name(old)}' cannot be renamed: object stores have no rename")


def _is_of_a_log(path: str) -> bool:
    return path.rpartition("/")[0].rpartition("/")[2] in _LOGS


def _is(error: Py4JJavaError, *classes: str) -> bool:
    return str(error.java_exception.getClass().getSimpleName()) in classes
