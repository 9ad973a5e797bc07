package io.millstream.kernel.state;

import io.millstream.kernel.core.PackedRows;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.streaming.QueryInfo;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Rows of tables that stay in memory between micro-batches, so that they need not be read again: those of one task.
 *
 * <p>A bucket's rows equal its state, for the next task with that bucket in the same run. A task takes them, so that no
 * other task has them, and leaves them for later ones if it succeeds. With a single JVM, no other task can have had the
 * bucket in the meantime. With several, this is certain only for the very next micro-batch. All other tasks begin with
 * nothing.
 */
public final class Retained {
    /** All of them together may take this fraction of the heap: one in so many bytes. */
    private static final int SHARE = 8;
    /** How long the memory of rows that no task has is reserved for them. */
    private static final long PATIENCE = TimeUnit.MINUTES.toNanos(1);

    private static final Map<Place, Bucket> LEFT = new HashMap<>();
    private static long taken;

    private record Place(String operator, int bucket) {}

    /**
     * The rows of a bucket.
     *
     * @param batch the micro-batch that left them
     * @param isWhole whether they have been here since the state was empty
     * @param rows by the item's number
     */
    private record Bucket(
            UUID query, UUID run, long batch, long since, boolean isWhole, Map<Integer, PackedRows> rows) {
        /** Always true. */
        boolean release() {
            rows.values().forEach(each -> hasRoom(-each.bytes()));
            rows.clear();
            return true;
        }
    }

    private final String operator;
    private final boolean isAlone;
    private final QueryInfo query;
    private final Map<Integer, Bucket> buckets = new HashMap<>();

    private Retained(String operator, boolean isAlone, QueryInfo query) {
        this.operator = operator;
        this.isAlone = isAlone;
        this.query = query;
    }

    /**
     * The rows of the calling task.
     *
     * @param operator the operator whose state it is; one that occurs twice in a query is the same one
     * @param isAlone whether all tasks are in this JVM
     * @return null outside a task
     */
    static Retained of(String operator, boolean isAlone, QueryInfo query) {
        TaskContext task = TaskContext.get();
        if (task == null) {
            return null;
        }
        Retained retained = new Retained(operator, isAlone, query);
        task.addTaskCompletionListener(
                (TaskCompletionListener) context -> retained.end(!context.isFailed() && !context.isInterrupted()));
        return retained;
    }

    /** A query has ended. */
    public static void end(String query) {
        synchronized (LEFT) {
            LEFT.values().removeIf(left -> left.query.toString().equals(query) && left.release());
        }
    }

    /** The rows of an item, in a bucket. */
    PackedRows rows(int item, int bucket, int parts) {
        Bucket mine = buckets.computeIfAbsent(bucket, this::take);
        return mine.rows.computeIfAbsent(
                item, key -> new PackedRows(parts, mine.isWhole, Retained::hasRoom));
    }

    private Bucket take(int bucket) {
        Bucket left;
        synchronized (LEFT) {
            left = LEFT.remove(new Place(operator, bucket));
        }
        long before = query.getBatchId() - 1;
        if (left != null) {
            if (left.run.equals(query.getRunId()) && (isAlone ? left.batch <= before : left.batch == before)) {
                return left;
            }
            left.release();
        }
        // The very first micro-batch begins with an empty state.
        return made(before < 0, new HashMap<>());
    }

    private Bucket made(boolean isWhole, Map<Integer, PackedRows> rows) {
        return new Bucket(
                query.getQueryId(), query.getRunId(), query.getBatchId(), System.nanoTime(), isWhole, rows);
    }

    private void end(boolean isGood) {
        buckets.forEach((number, bucket) -> {
            if (!isGood) {
                bucket.release();
                return;
            }
            synchronized (LEFT) {
                leave(new Place(operator, number), made(bucket.isWhole, bucket.rows));
            }
        });
        buckets.clear();
    }

    /** If a task was slower than the next one, what the later micro-batch has left stays. */
    private static void leave(Place place, Bucket mine) {
        Bucket other = LEFT.put(place, mine);
        if (other != null && other.run.equals(mine.run) && other.batch > mine.batch) {
            LEFT.put(place, other);
            mine.release();
        } else if (other != null) {
            other.release();
        }
    }

    private static boolean hasRoom(long bytes) {
        synchronized (LEFT) {
            long limit = Runtime.getRuntime().maxMemory() / SHARE;
            if (bytes > 0 && taken + bytes > limit) {
                long now = System.nanoTime();
                LEFT.values().removeIf(left -> now - left.since > PATIENCE && left.release());
                if (taken + bytes > limit) {
                    return false;
                }
            }
            taken += bytes;
            return true;
        }
    }
}
