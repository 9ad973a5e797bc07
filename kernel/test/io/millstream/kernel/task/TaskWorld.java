package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * A task without Kafka and without Spark: its operators, its state, and its changelogs, which are lists. It commits,
 * and starts anew from what it has committed, whenever it is told or as chance will have it.
 */
final class TaskWorld implements AutoCloseable {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final int CONTROL = 0;
    private static final int TIMESTAMP = 1;
    private static final int SINCE = 2;
    private static final int HEADERS = 3;
    private static final int KEY = 4;

    private record Logged(byte[] key, byte[] value) {}

    private final Random chance;
    private final double commits;
    private final double restarts;
    private final Path directory;
    private final boolean isLocal;
    private final List<TaskPlan.Store> stores = new ArrayList<>();
    private final List<List<Logged>> logs = new ArrayList<>();
    private final List<Operator> operators = new ArrayList<>();
    private final double losses;
    /** Those of the last commit. */
    private final List<byte[]> clocks = new ArrayList<>();

    private State state;
    private boolean isCommitted = true;
    private int opened;
    private Path copy;
    /** How many times it was started anew. */
    int restarted;

    /**
     * @param asked "seed"; "commits" and "restarts", the chance of a commit after a record, and of a restart after a
     *     commit; "losses", the chance that work after a commit is lost; "rocksdb", whether it is on disk;
     *     "local", whether what is due is in a store
     */
    TaskWorld(JsonNode asked) {
        chance = new Random(asked.path("seed").asLong());
        commits = asked.path("commits").asDouble(1);
        restarts = asked.path("restarts").asDouble(0);
        losses = asked.path("losses").asDouble(0);
        isLocal = asked.path("local").asBoolean(true);
        try {
            directory = asked.path("rocksdb").asBoolean() ? Files.createTempDirectory("task") : null;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        if (isLocal) {
            store(false);
        }
    }

    private int store(boolean isLogged) {
        int number = stores.size();
        stores.add(new TaskPlan.Store("s" + number, isLogged ? "log" + number : "", directory == null));
        logs.add(new ArrayList<>());
        return number;
    }

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    // --- operators -----------------------------------------------------------------------------------------

    /** An operator and what its results go to. */
    final class Operator {
        private final Operation.Spec spec;
        private final StructType schema;
        private final Consumer<InternalRow> results;
        private final List<int[]> columns = new ArrayList<>();
        private final List<int[]> placesOut = new ArrayList<>();
        private Operation operation;

        private Operator(int number, List<ObjectNode> items, List<DataType[]> types, Consumer<InternalRow> results) {
            this.results = results;
            StructType rows = new StructType()
                    .add("control", DataTypes.IntegerType)
                    .add("timestamp", DataTypes.LongType)
                    .add("since", DataTypes.LongType)
                    .add("headers", DataTypes.BinaryType)
                    .add("key", DataTypes.BinaryType);
            ObjectNode description = object();
            description.put("run", "run").put("number", number).put("headers", "headers").put("since", "since");
            if (isLocal) {
                description.put("local", 0);
            }
            ArrayNode all = description.putArray("items");
            int out = Operation.OWN.size();
            for (int i = 0; i < items.size(); i++) {
                ObjectNode item = items.get(i);
                String core = item.get("core").asText();
                item.put("on", "on" + i).put("key", "key").put("name", "suppress");
                if (!item.has("at_once")) {
                    item.put("at_once", true);
                }
                if (!List.of("lookup", "table_join", "changes", "pairs").contains(core)) {
                    item.put("store", store(true));
                }
                rows = rows.add("on" + i, DataTypes.BooleanType);
                ArrayNode parts = item.withArray("parts");
                int[] places = new int[types.get(i).length];
                for (int part = 0; part < places.length; part++) {
                    String name = "p" + i + "_" + part;
                    parts.addObject().put("name", name).put("rule", item.path("rule").asText("last"));
                    rows = rows.add(name, types.get(i)[part]);
                    places[part] = rows.fieldIndex(name);
                }
                columns.add(places);
                placesOut.add(new int[] {out, out + places.length});
                out += item.has("of") ? 0 : places.length * (item.at("/settings/old").asInt() == 1 ? 2 : 1);
                all.add(item);
            }
            schema = rows;
            spec = Operation.Spec.of(description, rows, null);
        }

        /** Sends a record to one of its items, and passes on what comes of it. */
        void send(int item, byte[] key, long at, long since, byte[] headers, Object... parts) {
            Object[] row = new Object[schema.size()];
            row[CONTROL] = RunningTask.RECORD;
            row[TIMESTAMP] = at;
            row[SINCE] = since;
            row[HEADERS] = headers;
            row[KEY] = key;
            row[schema.fieldIndex("on" + item)] = true;
            for (int i = 0; i < parts.length; i++) {
                row[columns.get(item)[i]] = parts[i];
            }
            operation.process(new GenericInternalRow(row));
            drain();
        }

        /** The column of a part in its rows. */
        int column(int item, int part, boolean isOld) {
            return placesOut.get(item)[isOld ? 1 : 0] + part;
        }

        private void commit() {
            Object[] row = new Object[schema.size()];
            row[CONTROL] = RunningTask.COMMIT;
            operation.process(new GenericInternalRow(row));
            drain();
        }

        private void drain() {
            for (InternalRow row = operation.result(); row != null; row = operation.result()) {
                results.accept(row);
            }
        }
    }

    /** @param types for each item those of its parts */
    Operator operator(List<ObjectNode> items, List<DataType[]> types, Consumer<InternalRow> results) {
        Operator made = new Operator(operators.size(), items, types, results);
        operators.add(made);
        return made;
    }

    /** A value as bytes. */
    static byte[] bytes(Object value) {
        if (value == null) {
            return null;
        }
        String text = value instanceof Long ? "n" + value : "t" + value;
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static Object value(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        String text = new String(bytes, StandardCharsets.UTF_8);
        return text.startsWith("n") ? (Object) Long.valueOf(text.substring(1)) : text.substring(1);
    }

    static Object value(InternalRow row, int column) {
        return row.isNullAt(column) ? null : value(row.getBinary(column));
    }

    // --- commits and restarts --------------------------------------------------------------------------------

    void open() {
        open(directory == null ? null : directory.resolve("0"), false, true);
    }

    private void open(Path at, boolean isAgain) {
        open(at, isAgain, chance.nextBoolean());
    }

    /** @param isTold whether operators are told of each entry that is restored */
    @SuppressWarnings("resource") // the state closes it
    private void open(Path at, boolean isAgain, boolean isTold) {
        if (isAgain) {
            state.close();
        }
        TaskDirectory own = at == null ? null : new TaskDirectory(at);
        state = new State(stores, own);
        if (!isTold) {
            replay((store, logged) -> state.put(store, logged.key, logged.value));
            if (isLocal) {
                Derived.outdate(state, 0);
            }
            state.committed(ends());
        }
        for (int i = 0; i < operators.size(); i++) {
            Operator each = operators.get(i);
            each.operation = new Operation(each.spec, state, null, null, null, isLocal);
            if (!clocks.isEmpty()) {
                each.operation.restoreClock(clocks.get(i));
            }
        }
        if (isTold) {
            replay((store, logged) -> {
                boolean isKept = true;
                for (Operator each : operators) {
                    isKept &= each.operation.restored(store, logged.key, logged.value);
                }
                if (isKept) {
                    state.put(store, logged.key, logged.value);
                }
            });
        }
        operators.forEach(each -> each.operation.settle());
        state.committed(ends());
    }

    private interface Replay {
        void record(int store, Logged logged);
    }

    /** Passes on what a state does not have; sometimes as a compacted topic has it. */
    private void replay(Replay replay) {
        boolean isCompacted = chance.nextBoolean();
        for (int store = 0; store < logs.size(); store++) {
            List<Logged> log = logs.get(store);
            Set<ByteBuffer> seen = new HashSet<>();
            List<Logged> rest = new ArrayList<>();
            for (int i = log.size() - 1; i >= state.position(store); i--) {
                if (!isCompacted || seen.add(ByteBuffer.wrap(log.get(i).key))) {
                    rest.add(log.get(i));
                }
            }
            for (int i = rest.size() - 1; i >= 0; i--) {
                replay.record(store, rest.get(i));
            }
        }
    }

    private long[] ends() {
        return logs.stream().mapToLong(List::size).toArray();
    }

    /** Called after a record: commits, or starts anew, or does nothing. */
    void next() {
        isCommitted = false;
        if (chance.nextDouble() < commits) {
            commit();
            if (chance.nextDouble() < restarts) {
                restart();
            }
        }
    }

    void commit() {
        isCommitted = true;
        operators.forEach(Operator::commit);
        clocks.clear();
        operators.forEach(each -> clocks.add(each.operation.clock()));
        state.changes((store, key, value, at) -> logs.get(store).add(new Logged(key, value)));
        state.committed(ends());
    }

    /** Whether what follows is to be done in vain. */
    boolean losesWork() {
        return isCommitted && chance.nextDouble() < losses;
    }

    /** Starts anew from nothing, from its directory, or from an older copy of that. */
    void restart() {
        restarted++;
        opened++;
        if (directory == null) {
            open(null, true);
            return;
        }
        Path now = directory.resolve(Integer.toString(opened - 1));
        Path next = directory.resolve(Integer.toString(opened));
        switch (chance.nextInt(3)) {
            case 0 -> open(next, true);
            case 1 -> {
                closed();
                copy(now, next);
                open(next, true);
            }
            default -> {
                closed();
                if (copy == null || chance.nextBoolean()) {
                    copy(now, next);
                    Path made = directory.resolve("copy" + opened);
                    copy(now, made);
                    copy = made;
                } else {
                    copy(copy, next);
                }
                open(next, true);
            }
        }
    }

    /** Closes the state, so that its files are complete, and opens another one in its place. */
    private void closed() {
        state.close();
        state = new State(List.of(), null);
    }

    private static void copy(Path from, Path to) {
        try (Stream<Path> files = Files.list(from)) {
            Files.createDirectories(to);
            for (Path file : files.toList()) {
                Files.copy(file, to.resolve(file.getFileName()));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Starts anew from the changelogs alone. */
    void restore(boolean isTold) {
        opened++;
        open(directory.resolve(Integer.toString(opened)), true, isTold);
    }

    /** How many entries there are. */
    int size() {
        int[] size = {0};
        for (int store = 0; store < stores.size(); store++) {
            state.range(store, new byte[0], null, (key, value) -> size[0]++);
        }
        return size[0];
    }

    /** How many changes were logged. */
    int logged() {
        return logs.stream().mapToInt(List::size).sum();
    }

    @Override
    public void close() {
        state.close();
        if (directory != null) {
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
