package io.millstream.kernel.python;

import io.millstream.kernel.Constants;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.TaskContext;

/**
 * Lets Python run processors for the records of a task, in chunks. What they put into stores stays in Python until the
 * chunk is done, and comes back with what they forward. The other end, and the frames, are in
 * millstream/spark/worker/processing.py.
 */
public final class Processing {
    private static final int MOST_RECORDS = 5_000;
    /** The maximum size of a chunk, and of a page of a range. */
    public static final int MOST_BYTES = 1 << 22;

    private final Program program;
    private final String name;
    private final boolean isResident;
    private Worker worker;

    /** What processors read from their stores: the contents before the chunk. */
    public interface Stores {
        /** The value of a key; null if there is none. */
        byte[] get(int store, byte[] key);

        /**
         * Keys and values, alternating, in order; fewer than requested once they reach {@link #MOST_BYTES}.
         *
         * @param from the first key; null for the very first one
         * @param end the key before which the range ends; null for no end
         */
        List<byte[]> range(int store, byte[] from, byte[] end, boolean isReverse, int limit);

        long count(int store);
    }

    /** A header of a record. */
    public record Header(String name, byte[] value) {}

    /**
     * A record.
     *
     * @param to the program's input that it is for; or -1 if it is the time of day, `at`
     */
    public record Input(
            int to,
            byte[] key,
            byte[] value,
            long at,
            List<Header> headers,
            String topic,
            int partition,
            long offset) {}

    /**
     * A record forwarded out of the program.
     *
     * @param place the place in the chunk of what was processed
     * @param of the record that led to it; null if none did
     */
    public record Output(int to, int place, byte[] key, byte[] value, long at, List<Header> headers, Input of) {}

    /**
     * An entry put into a store, or its changelog.
     *
     * @param value null for a deletion
     * @param at the timestamp of a changelog record; 0 for a store's entry
     */
    public record Put(int store, byte[] key, byte[] value, long at) {}

    /** A processor has raised an exception, and its record was dropped; `of` is null in a punctuation. */
    public record Failure(int processor, Input of, String exception, String message) {}

    /**
     * The results of a chunk; for each key of a store, only the last change.
     *
     * @param streamTime the largest timestamp so far
     * @param due when the next punctuation by the time of day is due, in ms; the largest number if none is
     * @param commits whether a processor has requested a commit
     */
    public record Made(
            List<Output> outputs,
            List<Put> changes,
            List<Put> logged,
            List<Failure> failures,
            long streamTime,
            long due,
            boolean commits) {}

    /**
     * @param owner the name under which its worker is kept from one task of Spark to the next, until {@link #end}
     */
    public Processing(Program program, String owner) {
        this(program, owner, false);
    }

    /** @param isResident whether the worker is with no task of Spark, but with its owner */
    public Processing(Program program, String owner, boolean isResident) {
        this.program = program;
        this.name = owner;
        this.isResident = isResident;
    }

    /** The workers of these owners, whose names begin like this, are free: their processors are closed. */
    public static void end(String owners) {
        Worker.release(owners + "/");
    }

    /**
     * A task, in one batch.
     *
     * @param partition its number
     * @param batch the batch
     * @param before its previous batch; -1 if there is none
     * @param streamTime the largest timestamp so far; the smallest long if there is none
     */
    public Task task(String run, int partition, long batch, long before, long streamTime, Stores stores) {
        return new Task(run, partition, batch, before, streamTime, stores);
    }

    /** A task whose processors are called. */
    public final class Task {
        private final String run;
        private final int partition;
        private final long batch;
        private final long before;
        private final Stores stores;
        private long streamTime;
        private boolean hasBegun;
        private final List<Input> chunk = new ArrayList<>();
        private long bytes;
        /** The stores that are read by a record's own key: they are read for all such keys of a chunk at once. */
        private final Set<Integer> asked = new TreeSet<>();

        private Task(String run, int partition, long batch, long before, long streamTime, Stores stores) {
            this.run = run;
            this.partition = partition;
            this.batch = batch;
            this.before = before;
            this.streamTime = streamTime;
            this.stores = stores;
        }

        public void add(Input input) {
            if (input.to == Constants.TICK && !chunk.isEmpty() && chunk.get(chunk.size() - 1).to == Constants.TICK) {
                chunk.remove(chunk.size() - 1); // missed times of day are skipped
            }
            chunk.add(input);
            bytes += size(input.key) + size(input.value);
        }

        public boolean isFull() {
            return chunk.size() >= MOST_RECORDS || bytes >= MOST_BYTES;
        }

        public boolean isEmpty() {
            return chunk.isEmpty();
        }

        /** The number of records in the chunk, and of times of day. */
        public int size() {
            return chunk.size();
        }

        /** Processes the chunk, which is empty afterwards. */
        public Made run() {
            try {
                TaskContext context = isResident ? null : TaskContext.get();
                if (worker == null || !worker.isTakenBy(context)) {
                    worker = Worker.take(program, name, context);
                }
                Made made = made(call(worker.bookmark()));
                streamTime = made.streamTime;
                hasBegun = true;
                chunk.clear();
                bytes = 0;
                return made;
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        private Message call(Bookmark bookmark) throws IOException {
            try {
                Message answer = worker.call(request(bookmark.name()), this::reply);
                bookmark.isOpen();
                return answer;
            } catch (WorkerLostException lost) {
                int place = bookmark.read();
                String where = "";
                if (place >= 0 && place < chunk.size() && chunk.get(place).topic != null) {
                    Input at = chunk.get(place);
                    where = ", at " + at.topic + "-" + at.partition + " offset " + at.offset;
                }
                throw new WorkerLostException(
                        lost.getMessage() + "; it was in the task of partition " + partition + where, lost);
            }
        }

        private Message request(String bookmark) {
            int count = chunk.size();
            int[] to = new int[count];
            byte[][] keys = new byte[count][];
            byte[][] values = new byte[count][];
            long[] at = new long[count];
            int[] topic = new int[count];
            int[] partitions = new int[count];
            long[] offsets = new long[count];
            List<String> topics = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                Input input = chunk.get(i);
                to[i] = input.to;
                keys[i] = input.key;
                values[i] = input.value;
                at[i] = input.at;
                topic[i] = Constants.NOTHING;
                if (input.topic != null) {
                    topic[i] = topics.indexOf(input.topic);
                    if (topic[i] < 0) {
                        topic[i] = topics.size();
                        topics.add(input.topic);
                    }
                }
                partitions[i] = input.partition;
                offsets[i] = input.offset;
            }
            long[] head = {partition, batch, before, streamTime, hasBegun ? 0 : 1};
            Message request = new Message(Constants.MESSAGE_REQUEST)
                    .add(new byte[][] {Message.text(run), Message.text(bookmark)})
                    .add(head)
                    .add(to)
                    .add(keys)
                    .add(values)
                    .add(at)
                    .add(topics.stream().map(Message::text).toArray(byte[][]::new))
                    .add(topic)
                    .add(partitions)
                    .add(offsets);
            addHeaders(request);
            request.add(asked.stream().mapToInt(Integer::intValue).toArray());
            asked.forEach(store -> request.add(ofOwnKeys(store)));
            return request;
        }

        private void addHeaders(Message request) {
            boolean hasAny = chunk.stream().anyMatch(input -> !input.headers.isEmpty());
            int[] counts = new int[hasAny ? chunk.size() : 0];
            List<byte[]> names = new ArrayList<>();
            List<byte[]> values = new ArrayList<>();
            for (int i = 0; i < counts.length; i++) {
                counts[i] = chunk.get(i).headers.size();
                for (Header header : chunk.get(i).headers) {
                    names.add(Message.text(header.name));
                    values.add(header.value);
                }
            }
            request.add(counts).add(names.toArray(new byte[0][])).add(values.toArray(new byte[0][]));
        }

        /** What a store has for the keys of the chunk's records, each key once, in their order. */
        private byte[][] ofOwnKeys(int store) {
            Set<ByteBuffer> keys = new LinkedHashSet<>();
            for (Input input : chunk) {
                if (input.key != null) {
                    keys.add(ByteBuffer.wrap(input.key));
                }
            }
            return keys.stream().map(key -> stores.get(store, key.array())).toArray(byte[][]::new);
        }

        private Message reply(Message question) throws IOException {
            int[] asks = question.ints(0);
            int store = asks[1];
            byte[][] bounds = question.bytes(1);
            Message reply = new Message(Constants.MESSAGE_REPLY);
            switch (asks[0]) {
                case Constants.ASK_VALUE -> {
                    return reply.add(new byte[][] {stores.get(store, bounds[0])});
                }
                case Constants.ASK_OWN_VALUE -> {
                    asked.add(store);
                    return reply.add(ofOwnKeys(store));
                }
                case Constants.ASK_RANGE -> {
                    List<byte[]> found = stores.range(store, bounds[0], bounds[1], asks[3] != 0, asks[2]);
                    long size = found.stream().mapToLong(Task::size).sum();
                    boolean isLast = found.size() < 2 * asks[2] && size < MOST_BYTES;
                    return reply.add(found.toArray(new byte[0][])).add(new int[] {isLast ? 1 : 0});
                }
                case Constants.ASK_COUNT -> {
                    return reply.add(new long[] {stores.count(store)});
                }
                default -> throw new IOException("a Python worker asked for '" + (char) asks[0] + "'");
            }
        }

        private Made made(Message answer) throws IOException {
            int[] to = answer.ints(0);
            int[] of = answer.ints(1);
            byte[][] keys = answer.bytes(2, to.length);
            byte[][] values = answer.bytes(3, to.length);
            long[] at = answer.longs(4);
            int[] counts = answer.ints(5);
            byte[][] names = answer.bytes(6);
            byte[][] contents = answer.bytes(7, names.length);
            List<Output> outputs = new ArrayList<>(to.length);
            int header = 0;
            for (int i = 0; i < to.length; i++) {
                List<Header> headers = new ArrayList<>();
                for (int n = counts.length == 0 ? 0 : counts[i]; n > 0; n--, header++) {
                    headers.add(new Header(Message.text(names[header]), contents[header]));
                }
                int place = of[i] < 0 ? Constants.NOTHING - of[i] : of[i];
                outputs.add(new Output(to[i], place, keys[i], values[i], at[i], headers, input(of[i])));
            }
            int[] changed = answer.ints(8);
            List<Put> changes =
                    puts(changed, answer.bytes(9, changed.length), answer.bytes(10, changed.length), null);
            int[] logged = answer.ints(11);
            List<Put> log = puts(
                    logged,
                    answer.bytes(12, logged.length),
                    answer.bytes(13, logged.length),
                    answer.longs(14));
            long[] times = answer.longs(15);
            return new Made(outputs, changes, log, failures(answer), times[0], times[1], times[2] != 0);
        }

        private Input input(int number) {
            return number < 0 ? null : chunk.get(number);
        }

        private List<Failure> failures(Message answer) throws IOException {
            int[] processors = answer.ints(16);
            int[] of = answer.ints(17);
            byte[][] exceptions = answer.bytes(18, processors.length);
            byte[][] messages = answer.bytes(19, processors.length);
            List<Failure> failures = new ArrayList<>(processors.length);
            for (int i = 0; i < processors.length; i++) {
                failures.add(new Failure(
                        processors[i], input(of[i]), Message.text(exceptions[i]), Message.text(messages[i])));
            }
            return failures;
        }

        private static List<Put> puts(int[] stores, byte[][] keys, byte[][] values, long[] at) {
            List<Put> puts = new ArrayList<>(stores.length);
            for (int i = 0; i < stores.length; i++) {
                puts.add(new Put(stores[i], keys[i], values[i], at == null ? 0 : at[i]));
            }
            return puts;
        }

        private static int size(byte[] data) {
            return data == null ? 0 : data.length;
        }
    }
}
