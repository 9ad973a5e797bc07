package io.millstream.kernel.files;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, which sets the permissions of a file by a call instead of a process.
 *
 * <p>Without Hadoop's native library, each file that Spark writes costs a process, {@code chmod}: two for each
 * micro-batch, and one for each partition of state. The permissions are the same. Checksum files, of which there would
 * be as many, are not written; existing ones are still compared when a file is read.
 */
public final class LocalFiles extends LocalFileSystem {
    @SuppressWarnings("resource") // it closes its inner file system
    public LocalFiles() {
        super(new WithoutProcesses());
        setWriteChecksum(false);
    }

    private static final class WithoutProcesses extends RawLocalFileSystem {
        private static final String MODE = "unix:mode";
        private static final int SET_ID = 06000;

        /** A directory keeps the set-group-ID bit, by which new files in it get its group, as with {@code chmod}. */
        @Override
        @SuppressWarnings("resource") // Java's own file system is never closed
        public void setPermission(Path path, FsPermission permission) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            if (!file.getFileSystem().supportedFileAttributeViews().contains("unix")) {
                super.setPermission(path, permission);
                return;
            }
            int kept = Files.isDirectory(file) ? (Integer) Files.getAttribute(file, MODE) & SET_ID : 0;
            Files.setAttribute(file, MODE, permission.toShort() & 01777 | kept);
        }
    }
}
