package io.millstream.kernel.files;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * The files of a query's checkpoint in an object store, written at once and under their own names.
 *
 * <p>Spark's own manager writes a file under another name and renames it, which in such a store is a copy and not
 * atomic. Its manager for abortable streams looks whether a name is taken before it writes, and so lets two clients
 * write one batch. Here the store decides. Paths of other file systems are treated as by Spark's own.
 */
public final class ObjectCheckpoints extends FileSystemBasedCheckpointFileManager {
    private static final String SCHEME = "s3a";

    public ObjectCheckpoints(Path path, Configuration conf) {
        super(path, conf);
    }

    @Override
    @SuppressWarnings("resource") // the file system is Hadoop's, which keeps it; what is returned, the caller's
    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        FileSystem files = fs();
        if (!SCHEME.equals(files.getScheme())) {
            return super.createAtomic(path, overwriteIfPossible);
        }
        if (!overwriteIfPossible) {
            return new Creating(files, path, new ByteArrayOutputStream());
        }
        try {
            return new Overwriting(ObjectFiles.overwriting(files, path));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** A file of state: it is there when it is closed. */
    private static final class Overwriting extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final FSDataOutputStream stream;
        private boolean ended;

        Overwriting(FSDataOutputStream stream) {
            super(stream);
            this.stream = stream;
        }

        @Override
        public synchronized void close() throws IOException {
            if (!ended) {
                ended = true;
                super.close();
            }
        }

        @Override
        public synchronized void cancel() {
            if (!ended) {
                ended = true;
                stream.abort();
            }
        }
    }

    /** A file of a log, which is small: it is kept until it is closed, to tell it from another one's. */
    private static final class Creating extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final FileSystem files;
        private final Path path;
        private final ByteArrayOutputStream content;
        private boolean ended;

        Creating(FileSystem files, Path path, ByteArrayOutputStream content) {
            super(content);
            this.files = files;
            this.path = path;
            this.content = content;
        }

        @Override
        public synchronized void close() throws IOException {
            if (!ended) {
                ended = true;
                super.close();
                if (!ObjectFiles.create(files, path, content.toByteArray())) {
                    throw ObjectFiles.taken(path);
                }
            }
        }

        @Override
        public synchronized void cancel() {
            ended = true;
        }
    }
}
