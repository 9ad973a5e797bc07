package io.millstream.kernel.realtime;

import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/**
 * The batches of a query in Real-Time Mode, which last for a fixed time unless they are ended early.
 *
 * <p>The driver and its tasks meet here, by the name of the run. If tasks run in another JVM, they cannot be told
 * anything, and read until their time is over.
 */
public final class Batches {
    private static final Map<String, Batches> RUNS = new ConcurrentHashMap<>();

    /** How long the query is held after its last batch, so that it can be stopped. */
    private static final long HELD_MS = 30_000;
    /** How long a query without partitions, whose batches end at once, waits for the next one. */
    private static final long WITHOUT_PARTITIONS_MS = 2_000;
    private static final String SHUFFLES = "shuffles";
    /** So many first batches of a run are short: 1 s, 2 s, 3 s, and so on. */
    private static final int SHORT = 5;

    /** The number of batches that were asked to end. */
    private final AtomicInteger turn = new AtomicInteger();
    /** That number when the current batch began: the same for all its sources. */
    private volatile int begun;

    /** The number of the current batch, from 1; it stays at that of the first long one. */
    private volatile int number = 1;
    /** When the current batch is over, if it is a short one, by the nano time; 0 until one of its readers asks. */
    private final AtomicLong overAt = new AtomicLong();

    private final Map<String, AtomicLong> positions = new ConcurrentHashMap<>();
    private final LongAdder records = new LongAdder();
    private final CountDownLatch wanted = new CountDownLatch(1);
    private final CountDownLatch settled = new CountDownLatch(1);
    private final Map<Object, Integer> tasks = new ConcurrentHashMap<>();
    private final String pipeline;
    private final int slots;

    private Batches(String pipeline, int slots, int behindShuffles) {
        this.pipeline = pipeline;
        this.slots = slots;
        tasks.put(SHUFFLES, behindShuffles);
    }

    /**
     * Called on the driver when a query of this name is about to start.
     *
     * @param pipeline its name in messages
     * @param slots how many tasks can run at once
     * @param behindShuffles how many of its tasks read no partition
     * @return its batches, until it is forgotten
     */
    public static Batches begin(String run, String pipeline, int slots, int behindShuffles) {
        Batches batches = new Batches(pipeline, slots, behindShuffles);
        RUNS.put(run, batches);
        return batches;
    }

    /** The query has ended. A newer one of the same name is left alone. */
    public static void forget(String run, Batches begun) {
        RUNS.remove(run, begun);
    }

    /** End the current batch; another one follows it. Has no effect on a batch that is already ending. */
    public static void turn(String run) {
        Batches batches = RUNS.get(run);
        if (batches != null) {
            batches.turn.compareAndSet(batches.begun, batches.begun + 1);
        }
    }

    /**
     * End the current batch, and let no other one begin. The query then waits to be stopped.
     *
     * @return whether everything read is committed; false if that takes longer than {@code patienceMs}, if the query
     *     fails, or if it is not here
     */
    public static boolean end(String run, long patienceMs) throws InterruptedException {
        Batches batches = RUNS.get(run);
        if (batches == null) {
            return false;
        }
        batches.wanted.countDown();
        batches.turn.incrementAndGet();
        return batches.settled.await(patienceMs, TimeUnit.MILLISECONDS);
    }

    /** The next offset of each partition being read, by {@code topic-partition}. */
    public static Map<String, Long> positions(String run) {
        Map<String, Long> found = new TreeMap<>();
        Batches batches = RUNS.get(run);
        if (batches != null) {
            batches.positions.forEach((place, next) -> found.put(place, next.get()));
        }
        return found;
    }

    /** How many records were read. */
    public static long records(String run) {
        Batches batches = RUNS.get(run);
        return batches == null ? 0 : batches.records.sum();
    }

    /** A batch is about to begin, and the previous one is committed. Called on the driver, before it is planned. */
    public static void beginning(String run) {
        Batches batches = RUNS.get(run);
        if (batches == null) {
            return;
        }
        try {
            if (batches.isWithoutPartitions()) {
                batches.wanted.await(WITHOUT_PARTITIONS_MS, TimeUnit.MILLISECONDS);
            }
            batches.begun = batches.turn.get();
            if (batches.overAt.getAndSet(0) != 0) { // called for each source; readers have asked in between
                batches.number++; // only the query's thread does this
            }
            if (batches.wanted.getCount() > 0) {
                return;
            }
            batches.settled.countDown();
            Thread.sleep(HELD_MS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            InterruptedIOException wanted = new InterruptedIOException("the query is being stopped");
            wanted.initCause(stopped);
            throw new UncheckedIOException(wanted); // in this form, Spark knows that the end is intended
        }
    }

    /** Whether its sources were planned and had nothing to read, such as a pattern that matches no topic. */
    private boolean isWithoutPartitions() {
        return tasks.size() > 1 && tasks.entrySet().stream().allMatch(each -> each.getKey().equals(SHUFFLES)
                || each.getValue() == 0);
    }

    /**
     * One of its sources has so many partitions. Each is read by a task, and none of these makes room for another: a
     * task without a slot would wait for the end of the batch, so the batch does not begin.
     */
    public static void planned(String run, Object source, int partitions) {
        Batches batches = RUNS.get(run);
        if (batches == null) {
            return;
        }
        batches.tasks.put(source, partitions);
        int needed = batches.needed();
        int others = RUNS.values().stream().mapToInt(Batches::needed).sum() - needed;
        if (needed + others >= batches.slots) {
            int missing = needed + others + 1 - batches.slots;
            throw new IllegalStateException("too few slots for Real-Time Mode: pipeline " + batches.pipeline + " has "
                    + needed + " tasks, which run as long as it does, other pipelines in Real-Time Mode have " + others
                    + ", and one slot must stay free; there are " + batches.slots + ". Start Spark with "
                    + "spark.master=local[" + (batches.slots + missing) + "] or more, where a slot is a thread; give a "
                    + "cluster " + missing + " more cores; or give processing.mode." + batches.pipeline
                    + "=micro-batch");
        }
    }

    private int needed() {
        return tasks.values().stream().mapToInt(Integer::intValue).sum();
    }

    /** The batch that is being planned. */
    static int now(String run) {
        Batches batches = RUNS.get(run);
        return batches == null ? 0 : batches.begun;
    }

    /** The query's batches, if its tasks are in the driver's JVM; or else null. */
    static Batches of(String run) {
        return RUNS.get(run);
    }

    /**
     * Whether a batch has to end. `turnAtStart`: how many batches had been asked to end when it began.
     *
     * <p>The first batches of a run are short. A turn waits for code that Java has not compiled yet; the first ones
     * take up to 0.7 s. So they come at the start, when records take longer anyway.
     */
    boolean isOver(int turnAtStart) {
        return isOver(turnAtStart, System.nanoTime());
    }

    boolean isOver(int turnAtStart, long now) {
        if (turn.get() != turnAtStart) {
            return true;
        }
        if (number > SHORT) {
            return false;
        }
        overAt.compareAndSet(0, now + TimeUnit.SECONDS.toNanos(number));
        return now - overAt.get() >= 0;
    }

    /** A record was read. */
    void count() {
        records.increment();
    }

    /** The next offset of a partition: everything before it was read, in this batch or an earlier one. */
    AtomicLong position(String place, long next) {
        AtomicLong position = positions.computeIfAbsent(place, each -> new AtomicLong(next));
        position.accumulateAndGet(next, Math::max);
        return position;
    }
}
