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
 * The files of a query's checkpoint in an object store, written as a whole and under their final names.
 *
 * <p>Spark's own manager writes a file under another name and renames it, which is a copy in such a store, and not
 * atomic. Its manager for abortable streams checks whether a name is taken before it writes, so two clients can write
 * the same batch. Here the store decides. Paths in other file systems are treated as by Spark's own manager.
 */
public final class ObjectCheckpoints extends FileSystemBasedCheckpointFileManager {
    private static final String SCHEME = "s3a";

    public ObjectCheckpoints(Path path, Configuration conf) {
        super(path, conf);
    }

    @Override
    @SuppressWarnings("resource") // Hadoop keeps the file system; the caller closes the result
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

    /** A file of state, which exists once it is closed. */
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

    /** A file of a log. It is small, and kept in memory until it is closed, to compare it with another client's. */
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
