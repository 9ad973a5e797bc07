package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.millstream.kernel.Constants;
import io.millstream.kernel.core.JoinTracesMain;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * Runs the programs of traces with joins as {@link JoinTracesMain} does, on the operators and the state of a task (see
 * {@link TaskWorld}).
 */
final class JoinPrograms extends JoinTracesMain {
    private static final DataType[] VALUE = {DataTypes.BinaryType};
    private static final DataType[] NOTHING = {};
    /** What to do with a notification. */
    private static final int FORGET = 0;

    private static final int FORGET_AND_ANSWER = 1;
    private static final int ANSWER = 2;
    private static final int ANSWER_IF_FOUND = 3;

    private final TaskWorld world;

    private JoinPrograms(JsonNode asked) {
        super(asked);
        world = new TaskWorld(asked);
    }

    static ArrayNode run(JsonNode asked) {
        JoinPrograms program = new JoinPrograms(asked);
        try (program.world) {
            return program.run();
        }
    }

    @Override
    @SuppressWarnings("super")
    protected void begin() {
        world.open();
    }

    @Override
    @SuppressWarnings("super")
    protected void end(ObjectNode ofBatch, int next) {
        world.next();
        ofBatch.put("kept", world.size());
        ofBatch.put("logged", world.logged());
        ofBatch.put("restarted", world.restarted);
    }

    private ObjectNode item(String core) {
        ObjectNode item = TaskWorld.object();
        item.put("core", core);
        ObjectNode settings = item.putObject("settings");
        if (asked.has("capacity")) {
            settings.set("capacity", asked.get("capacity"));
        }
        return item;
    }

    private static ObjectNode set(ObjectNode item, String name, long value) {
        ((ObjectNode) item.get("settings")).put(name, value);
        return item;
    }

    private ObjectNode rows(Long history, boolean remembers, boolean isSilent) {
        ObjectNode item = item(history == null ? "latest" : "versions");
        if (history != null) {
            set(item, "history", history);
        }
        set(item, "old", remembers ? 1 : 0);
        return set(item, "silent", isSilent ? 1 : 0);
    }

    private static String key(InternalRow row) {
        return row.isNullAt(2) ? null : new String(row.getBinary(2), StandardCharsets.UTF_8);
    }

    private static void send(TaskWorld.Operator to, int item, Change change) {
        to.send(item, change.bytes(), change.at(), change.since(), null, TaskWorld.bytes(change.value()));
    }

    @Override
    @SuppressWarnings("super")
    protected Node table(JsonNode op, Node before) {
        Node made = new Node(true);
        made.history = history(op);
        TaskWorld.Operator[] rows = new TaskWorld.Operator[1];
        rows[0] = world.operator(List.of(rows(made.history, true, false)), List.of(VALUE, NOTHING), row -> {
            Object value = TaskWorld.value(row, rows[0].column(0, 0, false));
            Object old = TaskWorld.value(row, rows[0].column(0, 0, true));
            made.send(new Change(key(row), value, old, row.getLong(5), row.getLong(5), !row.isNullAt(6)));
        });
        before.next.add(change -> {
            if (change.key() != null) {
                send(rows[0], 0, change);
            }
        });
        return made;
    }

    @Override
    @SuppressWarnings("super")
    protected Node lookUp(JsonNode op, Node stream, Node table) {
        boolean isInner = op.get("op").asText().equals("join");
        Node made = new Node(false);
        ObjectNode lookup = item(op.has("grace") ? "waiting" : "lookup");
        set(set(lookup, "table", 0), "alone", isInner ? 0 : 1);
        set(lookup, "grace", op.path("grace").asLong());
        TaskWorld.Operator[] join = new TaskWorld.Operator[1];
        List<ObjectNode> items = List.of(rows(table.history, false, true), lookup);
        join[0] = world.operator(items, List.of(VALUE, VALUE), row -> made.send(new Change(
                key(row),
                joined(
                        TaskWorld.value(row, join[0].column(1, 0, false)),
                        TaskWorld.value(row, join[0].column(0, 0, false))),
                null,
                row.getLong(5))));
        table.next.add(0, change -> send(join[0], 0, change)); // before anybody hears of it
        stream.next.add(change -> {
            if (change.value() != null && (change.key() != null || !isInner)) {
                send(join[0], 1, change);
            }
        });
        return made;
    }

    @Override
    @SuppressWarnings("super")
    protected Node pair(JsonNode op, Node left, Node right) {
        boolean isLeftOuter = !op.get("op").asText().equals("join");
        boolean isRightOuter = op.get("op").asText().equals("outer_join");
        Node made = new Node(false);
        List<ObjectNode> items = List.of(item("records"), item("records"), item("pairs"));
        for (ObjectNode each : items) {
            for (String name : List.of("before", "after", "grace")) {
                set(each, name, op.get(name).asLong());
            }
            set(set(each, "left_outer", isLeftOuter ? 1 : 0), "right_outer", isRightOuter ? 1 : 0);
        }
        set(set(items.get(2), "left", 0), "right", 1);
        TaskWorld.Operator[] join = new TaskWorld.Operator[1];
        join[0] = world.operator(items, List.of(VALUE, VALUE, NOTHING), row -> made.send(new Change(
                key(row),
                joined(
                        TaskWorld.value(row, join[0].column(0, 0, false)),
                        TaskWorld.value(row, join[0].column(1, 0, false))),
                null,
                row.getLong(5))));
        for (boolean isLeft : new boolean[] {true, false}) {
            (isLeft ? left : right).next.add(change -> {
                boolean isOuter = isLeft ? isLeftOuter : isRightOuter;
                if (change.value() != null && (change.key() != null || isOuter)) {
                    send(join[0], isLeft ? 0 : 1, change);
                }
            });
        }
        return made;
    }

    @Override
    @SuppressWarnings("super")
    protected Node joinTables(JsonNode op, Node left, Node right) {
        if (op.has("foreign_key")) {
            return joinByForeignKey(op, left, right);
        }
        String name = op.get("op").asText();
        Node made = new Node(true);
        made.history = history(op);
        boolean isOfOne = left == right;
        ObjectNode both = set(set(item("table_join"), "left", 0), "right", isOfOne ? 0 : 1);
        List<ObjectNode> items = isOfOne
                ? List.of(rows(left.history, true, true), both)
                : List.of(rows(left.history, true, true), rows(right.history, true, true), both);
        int onRight = isOfOne ? 0 : 1;
        TaskWorld.Operator[] join = new TaskWorld.Operator[1];
        join[0] = world.operator(items, List.of(VALUE, isOfOne ? NOTHING : VALUE, NOTHING), row -> {
            boolean isLeft = row.getLong(6) == Constants.SIDE_LEFT;
            int own = isLeft ? 0 : onRight;
            Object value = TaskWorld.value(row, join[0].column(own, 0, false));
            Object old = TaskWorld.value(row, join[0].column(own, 0, true));
            Object other = TaskWorld.value(row, join[0].column(isLeft ? onRight : 0, 0, false));
            Change change = new Change(key(row), value, old, row.getLong(5), row.getLong(3), false);
            emit(name, isLeft, inStore(op, change), other, made);
        });
        left.next.add(change -> send(join[0], 0, change));
        if (!isOfOne) {
            right.next.add(change -> send(join[0], 1, change));
        }
        return made;
    }

    /** As Kafka Streams and millstream/spark/compile/foreign_key_nodes.py do it, without the topics in between. */
    private Node joinByForeignKey(JsonNode op, Node left, Node right) {
        boolean isLeftOuter = op.get("op").asText().equals("left_join");
        Function<Object, String> foreign = newKey(op.get("foreign_key").asText());
        Node made = new Node(true);
        TaskWorld.Operator[] referring = new TaskWorld.Operator[1];
        TaskWorld.Operator[] referred = new TaskWorld.Operator[1];
        ObjectNode answered = set(set(item("lookup"), "table", 0), "alone", 1);
        ObjectNode changes = set(item("changes"), "table", 0);
        // Answers: the left row that they are for, and the right one.
        DataType[] answer = {DataTypes.BinaryType, DataTypes.BinaryType};
        referring[0] = world.operator(
                List.of(rows(null, true, false), answered, changes), List.of(VALUE, answer, NOTHING), row -> {
                    TaskWorld.Operator it = referring[0];
                    Object value = TaskWorld.value(row, it.column(0, 0, false));
                    if (row.getInt(0) == 0) {
                        Object old = TaskWorld.value(row, it.column(0, 0, true));
                        notify(referred[0], row, isLeftOuter, value, old, foreign);
                    } else if (Objects.equals(value, TaskWorld.value(row, it.column(1, 0, false)))) {
                        Object of = TaskWorld.value(row, it.column(1, 1, false));
                        boolean isRow = of != null || isLeftOuter && value != null;
                        made.send(new Change(key(row), isRow ? joined(value, of) : null, null, row.getLong(5)));
                    }
                });
        ObjectNode references = set(item("references"), "table", 0);
        DataType[] reference = {DataTypes.BinaryType, DataTypes.BinaryType, DataTypes.BooleanType};
        referred[0] = world.operator(
                List.of(rows(null, true, true), references), List.of(VALUE, reference), row -> {
                    TaskWorld.Operator it = referred[0];
                    boolean isChange = !row.isNullAt(6);
                    String request = (String) TaskWorld.value(row, it.column(1, 0, false));
                    int code = request.charAt(0) - '0';
                    Object of = request.length() == 1 ? null : request.substring(1);
                    byte[] name = row.getBinary(it.column(1, 1, false));
                    Object value = TaskWorld.value(row, it.column(0, 0, false));
                    Object old = TaskWorld.value(row, it.column(0, 0, true));
                    boolean isWanted = isChange
                            ? !right.isFiltered || value != null || old != null
                            : code == FORGET_AND_ANSWER
                            || code == ANSWER
                            || code == ANSWER_IF_FOUND && value != null;
                    if (isWanted) {
                        Object told = isChange || code != FORGET_AND_ANSWER ? value : null;
                        long at = row.getLong(5);
                        referring[0].send(1, name, at, at, null, TaskWorld.bytes(of), TaskWorld.bytes(told));
                    }
                });
        left.next.add(change -> send(referring[0], 0, change));
        right.next.add(change -> send(referred[0], 0, change));
        return made;
    }

    /** @param foreign null if it is the key itself */
    private static void notify(
            TaskWorld.Operator to,
            InternalRow row,
            boolean isLeftOuter,
            Object value,
            Object old,
            Function<Object, String> foreign) {
        String now = value == null ? null : foreign == null ? key(row) : foreign.apply(value);
        String before = old == null ? null : foreign == null ? key(row) : foreign.apply(old);
        boolean hasMoved = before != null && !before.equals(now);
        if (isLeftOuter ? hasMoved : now != null && hasMoved) {
            ask(to, row, before, FORGET, value);
        }
        if (isLeftOuter) {
            if (hasMoved || value != null || old != null) {
                ask(to, row, now, ANSWER, value);
            }
        } else if (now != null) {
            ask(to, row, now, hasMoved ? ANSWER : ANSWER_IF_FOUND, value);
        } else if (hasMoved) {
            ask(to, row, before, FORGET_AND_ANSWER, value);
        }
    }

    private static void ask(TaskWorld.Operator to, InternalRow row, String foreign, int code, Object value) {
        byte[] key = foreign == null ? null : foreign.getBytes(StandardCharsets.UTF_8);
        String request = code + (value == null ? "" : value.toString());
        long at = row.getLong(5);
        to.send(1, key, at, at, null, TaskWorld.bytes(request), row.getBinary(2), code >= ANSWER);
    }
}
