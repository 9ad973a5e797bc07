package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.apache.kafka.common.Uuid;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The directory of a task, which is a cache of what its changelogs have: `lock`, which says that it is in use; `task`,
 * which says whose it is; `rocksdb`, the stores. What is not this task's is thrown away, and one line of the log says
 * why.
 */
final class TaskDirectory implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(TaskDirectory.class);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int FORMAT = 2;
    /** How long an executor waits for a directory whose former owner is being closed. */
    private static final long PATIENCE_MS = 3_000;

    private static final long PAUSE_MS = 20;

    private final Path path;
    private final FileChannel channel;
    private final FileLock lock;
    private JsonNode found;

    /** Takes a directory that is in the plan's; in an executor that lacks it, or shares it, one of Spark's own. */
    @SuppressWarnings("resource") // the caller closes it
    static TaskDirectory of(TaskPlan plan, Path path) {
        if (!Endpoint.isExecutor()) {
            return new TaskDirectory(path);
        }
        Path own = Path.of(SparkEnv.get().blockManager().diskBlockManager().localDirsString()[0], "millstream")
                .resolve(plan.application())
                .resolve(Path.of(plan.directory()).relativize(path));
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (true) {
            try {
                return new TaskDirectory(path);
            } catch (IllegalStateException error) {
                boolean isInUse = error.getCause() == null;
                if (!isInUse || System.nanoTime() - until > 0) {
                    LOG.info("{}; this executor has {}", error.getMessage(), own);
                    return new TaskDirectory(own);
                }
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(PAUSE_MS));
        }
    }

    /** For directories that only their owner can enter, where a file system has such: executors make all of it. */
    @SuppressWarnings("resource") // the file system of all
    private static final FileAttribute<?>[] CLOSED =
            FileSystems.getDefault().supportedFileAttributeViews().contains("posix")
                    ? new FileAttribute<?>[] {
                        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
                    }
                    : new FileAttribute<?>[0];

    /** Takes the directory, which is made if it does not exist. */
    TaskDirectory(Path path) {
        this.path = path;
        try {
            Files.createDirectories(path, CLOSED);
            channel = FileChannel.open(path.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
            lock = locked();
        } catch (IOException error) {
            throw unusable("cannot be used", error);
        }
        found = read();
    }

    private JsonNode read() {
        try {
            return Files.exists(says()) ? JSON.readTree(says().toFile()) : null;
        } catch (IOException damaged) {
            LOG.debug("{} is damaged", says(), damaged);
            return null;
        }
    }

    private IllegalStateException unusable(String why, Exception error) {
        return new IllegalStateException("the directory " + path + " " + why + ": " + error.getMessage(), error);
    }

    private FileLock locked() throws IOException {
        FileLock taken = null;
        try {
            taken = channel.tryLock();
        } catch (@SuppressWarnings("unused") OverlappingFileLockException ours) {
            LOG.debug("{} is in use by this process", path);
        }
        if (taken == null) {
            channel.close();
            throw new IllegalStateException("the directory " + path + " is in use by another process, or by this one: "
                    + "two clients on one machine need a state.dir each");
        }
        return taken;
    }

    Path database() {
        return path.resolve("rocksdb");
    }

    private Path says() {
        return path.resolve("task");
    }

    /** The id that a topic had when the directory was written; null if it does not say. */
    Uuid id(String topic) {
        JsonNode id = found == null ? null : found.path("topics").get(topic);
        return id == null ? null : Uuid.fromString(id.asText());
    }

    /** The ids that topics had when the directory was written. */
    Map<String, Uuid> ids() {
        Map<String, Uuid> ids = new TreeMap<>();
        if (found != null) {
            found.path("topics").properties().forEach(each -> ids.put(
                    each.getKey(), Uuid.fromString(each.getValue().asText())));
        }
        return ids;
    }

    /** Whether {@link #claim} would keep what it has. */
    boolean fits(TaskPlan plan, Topics topics) {
        return difference(wanted(plan.application(), plan.stores(), topics)) == null;
    }

    /** Whether its content is of this application and cluster. */
    boolean isOf(TaskPlan plan, Topics topics) {
        return found != null
                && found.path("application").asText().equals(plan.application())
                && found.path("cluster").asText().equals(topics.cluster());
    }

    /** Makes it this task's: what it has is thrown away if it is another's. */
    void claim(TaskPlan plan, Topics topics) {
        claim(plan.application(), plan.stores(), topics);
    }

    /** Makes it that of these stores. */
    void claim(String application, List<TaskPlan.Store> kept, Topics topics) {
        ObjectNode wanted = wanted(application, kept, topics);
        if (Files.exists(database())) {
            String why = difference(wanted);
            if (why != null) {
                wipe(why);
            }
        }
        if (!wanted.equals(found)) {
            write(wanted);
        }
    }

    private static ObjectNode wanted(String application, List<TaskPlan.Store> kept, Topics topics) {
        ObjectNode wanted = JSON.createObjectNode();
        wanted.put("format", FORMAT).put("application", application).put("cluster", topics.cluster());
        ObjectNode ids = wanted.putObject("topics");
        new TreeMap<>(topics.ids()).forEach((topic, id) -> ids.put(topic, id.toString()));
        ObjectNode stores = wanted.putObject("stores");
        for (TaskPlan.Store store : kept) {
            if (!store.isInMemory()) {
                stores.put(store.name(), String.join(" ", store.changelog(), store.layout(), store.form()).strip());
            }
        }
        return wanted;
    }

    private String difference(ObjectNode wanted) {
        if (found == null) {
            return "it does not say whose it is";
        }
        for (String each : List.of("format", "application", "cluster", "stores")) {
            if (!wanted.get(each).equals(found.get(each))) {
                return "it is of another " + each.replaceAll("s$", "") + ": " + found.get(each) + ", not "
                        + wanted.get(each);
            }
        }
        for (Map.Entry<String, JsonNode> topic : wanted.get("topics").properties()) {
            JsonNode before = found.path("topics").get(topic.getKey());
            if (before != null && !before.equals(topic.getValue())) {
                return "topic '" + topic.getKey() + "' was made anew: its id was " + before.asText() + " and is "
                        + topic.getValue().asText();
            }
        }
        return null;
    }

    private void write(ObjectNode wanted) {
        Path part = path.resolve("task.part");
        try {
            Files.writeString(part, wanted.toPrettyString());
            Files.move(part, says(), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException error) {
            throw unusable("cannot be used", error);
        }
        found = wanted;
    }

    /** Throws the stores away; they are restored from their changelogs. */
    void wipe(String why) {
        LOG.warn("{} is wiped, and what it had is restored from the changelogs: {}", path, why);
        try (Stream<Path> all = Files.walk(database())) {
            for (Path each : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        } catch (IOException | UncheckedIOException error) {
            throw unusable("cannot be wiped", error);
        }
    }

    /** The next one that takes it throws away what it has. */
    void condemn() {
        try {
            Files.deleteIfExists(says());
        } catch (IOException error) {
            LOG.warn("{} is damaged, and cannot be marked as such; delete it", path, error);
        }
    }

    @Override
    public void close() {
        try {
            lock.close();
            channel.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
