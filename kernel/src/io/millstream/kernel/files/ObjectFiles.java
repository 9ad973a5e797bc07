package io.millstream.kernel.files;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * Objects of a store with conditional writes (S3), through Hadoop's file system for it.
 *
 * <p>An object appears as a whole. {@code create} writes one only if there is none (If-None-Match), and
 * {@code replace} only in place of the one that was seen (If-Match). The store decides, so one of any number of
 * clients wins. A <em>fence</em> is an object with a special content. It takes the name that another client would
 * create next.
 */
public final class ObjectFiles {
    // From Options.CreateFileOptionKeys, which Hadoop before 3.5 lacks: its S3A refuses unknown keys.
    private static final String IF_NONE = "fs.option.create.conditional.overwrite";
    private static final String IF_IT_IS = "fs.option.create.conditional.overwrite.etag";
    private static final int AT_ONCE = 16;

    private ObjectFiles() {}

    /** Create an object if there is none; whether the existing object is now this one. */
    @SuppressWarnings("resource") // what it opens is closed where it is written
    public static boolean create(FileSystem files, Path path, byte[] content) throws IOException {
        try {
            write(conditional(files, path), content);
            return true;
        } catch (IOException error) {
            byte[] there = readOrNull(files, path);
            if (there == null) {
                throw error;
            }
            // A request that was repeated because its answer was lost finds the object that it created itself.
            return content.length > 0 && Arrays.equals(there, content);
        }
    }

    /** Replace the content, unless the object is a fence or changes meanwhile; whether it is now this one. */
    public static boolean replace(FileSystem files, Path path, byte[] content, byte[] fence) throws IOException {
        String seen = etagOrNull(files, path);
        if (seen == null) {
            return create(files, path, content);
        }
        if (Arrays.equals(readOrNull(files, path), fence)) {
            return false;
        }
        try {
            FSDataOutputStream stream = (FSDataOutputStream) files.createFile(path)
                    .overwrite(true)
                    .recursive()
                    .must(IF_IT_IS, seen)
                    .build();
            write(stream, content);
            return true;
        } catch (IOException error) {
            if (Arrays.equals(readOrNull(files, path), content)) {
                return true;
            }
            if (seen.equals(etagOrNull(files, path))) {
                throw error; // the object is unchanged, so something else went wrong
            }
            return false;
        }
    }

    /** Write a new content, whatever exists. */
    @SuppressWarnings("resource") // as above
    public static void put(FileSystem files, Path path, byte[] content) throws IOException {
        write(overwriting(files, path), content);
    }

    /**
     * How many of several writers that create the same object at the same moment are told that they succeeded. All have
     * opened it, and seen nothing there, before the first one closes it.
     */
    @SuppressWarnings("resource") // each is closed by its writer
    public static int winners(FileSystem files, Path path, int writers) throws IOException {
        List<FSDataOutputStream> streams = new ArrayList<>();
        for (int each = 0; each < writers; each++) {
            FSDataOutputStream stream = conditional(files, path);
            stream.write(("writer " + each).getBytes(StandardCharsets.US_ASCII));
            streams.add(stream);
        }
        CountDownLatch start = new CountDownLatch(1);
        AtomicInteger winners = new AtomicInteger();
        List<Work> work = new ArrayList<>();
        for (FSDataOutputStream stream : streams) {
            work.add(() -> {
                start.await();
                try {
                    stream.close();
                    winners.incrementAndGet();
                } catch (IOException lost) {
                    if (readOrNull(files, path) == null) {
                        throw lost;
                    }
                }
            });
        }
        atOnce(work, start);
        return winners.get();
    }

    /** Copy everything below a directory to another one, except fences; the number of objects. */
    public static int copy(FileSystem files, Path from, Path to, byte[] fence) throws IOException {
        List<Work> work = new ArrayList<>();
        AtomicInteger copied = new AtomicInteger();
        for (FileStatus each : below(files, from)) {
            work.add(() -> {
                Path target = new Path(to, relative(from, each.getPath()));
                try (FSDataInputStream in = files.open(each.getPath())) {
                    if (each.getLen() == fence.length) {
                        byte[] content = in.readAllBytes();
                        if (!Arrays.equals(content, fence)) {
                            put(files, target, content);
                            copied.incrementAndGet();
                        }
                        return;
                    }
                    try (FSDataOutputStream out = overwriting(files, target)) {
                        try {
                            in.transferTo(out);
                        } catch (IOException | RuntimeException error) {
                            out.abort();
                            throw error;
                        }
                    }
                    copied.incrementAndGet();
                } catch (IOException error) {
                    // The previous owner may still delete what is too old to be needed.
                    if (!(error instanceof FileNotFoundException)) {
                        throw error;
                    }
                }
            });
        }
        atOnce(work, new CountDownLatch(0));
        return copied.get();
    }

    /** Delete everything below a directory, except fences, which are in directories right below it. */
    public static void clear(FileSystem files, Path directory, byte[] fence) throws IOException {
        List<Work> work = new ArrayList<>();
        for (FileStatus part : in(files, directory)) {
            List<Path> others = new ArrayList<>();
            boolean fenced = false;
            for (FileStatus each : part.isDirectory() ? in(files, part.getPath()) : new FileStatus[0]) {
                boolean stays = each.getLen() == fence.length
                        && Arrays.equals(readOrNull(files, each.getPath()), fence);
                fenced |= stays;
                if (!stays) {
                    others.add(each.getPath());
                }
            }
            // A directory is deleted together with its marker object.
            for (Path each : fenced ? others : List.of(part.getPath())) {
                work.add(() -> files.delete(each, true));
            }
        }
        atOnce(work, new CountDownLatch(0));
    }

    static FSDataOutputStream overwriting(FileSystem files, Path path) throws IOException {
        // A single request: nothing is checked before it, and no directory marker is deleted after it.
        return (FSDataOutputStream) files.createFile(path)
                .overwrite(true)
                .recursive()
                .opt("fs.s3a.create.performance", true)
                .build();
    }

    private static FSDataOutputStream conditional(FileSystem files, Path path) throws IOException {
        return (FSDataOutputStream) files.createFile(path)
                .overwrite(true)
                .recursive()
                .must(IF_NONE, true)
                .build();
    }

    private static void write(FSDataOutputStream opened, byte[] content) throws IOException {
        try (FSDataOutputStream stream = opened) {
            stream.write(content); // into memory, so only closing it can fail
        }
    }

    private static String etagOrNull(FileSystem files, Path path) throws IOException {
        try {
            return ((EtagSource) files.getFileStatus(path)).getEtag();
        } catch (IOException error) {
            return nothing(error);
        }
    }

    private static byte[] readOrNull(FileSystem files, Path path) throws IOException {
        try (FSDataInputStream in = files.open(path)) {
            return in.readAllBytes();
        } catch (IOException error) {
            return nothing(error);
        }
    }

    private static <T> T nothing(IOException error) throws IOException {
        if (error instanceof FileNotFoundException) {
            return null;
        }
        throw error;
    }

    private static FileStatus[] in(FileSystem files, Path directory) throws IOException {
        try {
            return files.listStatus(directory);
        } catch (IOException error) {
            return nothing(error) == null ? new FileStatus[0] : null;
        }
    }

    private static List<FileStatus> below(FileSystem files, Path directory) throws IOException {
        List<FileStatus> found = new ArrayList<>();
        try {
            // By name, so digits before letters: a snapshot's list is seen before the files that it names, which
            // existed before it.
            RemoteIterator<LocatedFileStatus> each = files.listFiles(directory, true);
            while (each.hasNext()) {
                found.add(each.next());
            }
        } catch (IOException error) {
            return nothing(error) == null ? List.of() : found;
        }
        return found;
    }

    private static String relative(Path above, Path path) {
        String root = above.toUri().getPath();
        return path.toUri().getPath().substring(root.length() + (root.endsWith("/") ? 0 : 1));
    }

    private interface Work {
        void run() throws IOException, InterruptedException;
    }

    private static void atOnce(List<Work> work, CountDownLatch start) throws IOException {
        if (work.isEmpty()) {
            return;
        }
        Crew crew = new Crew(Math.min(AT_ONCE, work.size()));
        try {
            List<Future<?>> waiting = new ArrayList<>();
            for (Work each : work) {
                waiting.add(crew.begin(each));
            }
            start.countDown();
            for (Future<?> each : waiting) {
                each.get();
            }
        } catch (ExecutionException error) {
            if (error.getCause() instanceof IOException cause) {
                throw cause;
            }
            throw new IOException(error.getCause());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw (IOException) new InterruptedIOException().initCause(error);
        } finally {
            crew.dismiss();
        }
    }

    /** Threads for one task. In a field, because compilers for Java 19 or later want a local variable closed. */
    private static final class Crew {
        private final AtomicInteger number = new AtomicInteger();
        private final ExecutorService threads;

        Crew(int size) {
            threads = Executors.newFixedThreadPool(size, task -> {
                Thread thread = new Thread(task, "millstream-objects-" + number.incrementAndGet());
                thread.setDaemon(true);
                return thread;
            });
        }

        Future<?> begin(Work work) {
            return threads.submit(() -> {
                work.run();
                return null;
            });
        }

        void dismiss() {
            threads.shutdownNow();
        }
    }

    /** The exception that Spark's logs expect if another client was quicker. */
    static FileAlreadyExistsException taken(Path path) {
        return new FileAlreadyExistsException("'" + path + "' was created by another client, or is a fence");
    }
}
