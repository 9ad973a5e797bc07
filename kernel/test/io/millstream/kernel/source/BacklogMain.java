package io.millstream.kernel.source;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;

/** Prints the limits of the sources of a query, and the report of its first batch. No broker is asked for times. */
public final class BacklogMain {
    private static final String RUN = "run";
    private static final String A = "{\"a\":{\"0\":%d,\"1\":%d}}";
    private static final String B = "{\"b\":{\"0\":%d}}";

    private BacklogMain() {}

    /** A source with so many records, of which none was read. */
    private record Source(Offset first, Offset last) implements MicroBatchStream, SupportsAdmissionControl {
        Source(String first, String last) {
            this(new At(first), last == null ? null : new At(last));
        }

        @Override
        public Offset latestOffset() {
            throw new UnsupportedOperationException();
        }

        @Override
        public Offset latestOffset(Offset start, ReadLimit limit) {
            return last;
        }

        @Override
        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            throw new UnsupportedOperationException();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            throw new UnsupportedOperationException();
        }

        @Override
        public Offset initialOffset() {
            return first;
        }

        @Override
        public Offset deserializeOffset(String json) {
            return new At(json);
        }

        @Override
        public void commit(Offset end) {
            // it keeps nothing
        }

        @Override
        public void stop() {
            // it holds nothing
        }
    }

    private static final class At extends Offset {
        private final String json;

        At(String json) {
            this.json = json;
        }

        @Override
        public String json() {
            return json;
        }
    }

    public static void main(String[] arguments) {
        Source a = new Source(A.formatted(0, 0), A.formatted(600, 400));
        Source b = new Source(B.formatted(0), B.formatted(10));
        batches("new", begin(101, List.of(), false, a, b), null, null, 3);
        batches("again", begin(101, List.of(A.formatted(300, 400), B.formatted(5)), false, a, b),
                A.formatted(300, 400), B.formatted(5), 2);
        batches("repeating", begin(101, List.of(A.formatted(300, 400), "-"), true, a, b),
                A.formatted(300, 400), null, 1);
        batches("another log", begin(5, List.of(), false, a, b), A.formatted(300, 0), B.formatted(9), 1);
        batches("read twice", begin(100, List.of(), false, a, a), null, null, 1);
        batches("made anew", begin(5000, List.of(A.formatted(700, 400), B.formatted(0)), false, a, b),
                A.formatted(700, 400), B.formatted(0), 1);
        batches("nothing", begin(100, List.of(), false, new Source("{}", null), new Source("{}", null)), null, null, 1);
        Backlog old = begin(1, List.of(), false);
        Backlog young = begin(2, List.of(), false);
        Backlog.forget(RUN, old);
        System.out.println("the new one is there: " + (Backlog.of(RUN) == young));
        Backlog.forget(RUN, young);
        System.out.println("forgotten: " + (Backlog.of(RUN) == null));
    }

    private static Backlog begin(long limit, List<String> log, boolean isRepeating, Source... sources) {
        Backlog backlog = Backlog.begin(RUN, limit, limit, 0, log, isRepeating);
        for (int number = 0; number < sources.length; number++) {
            backlog.add(number, sources[number], Map.of(), false);
        }
        return backlog;
    }

    private static void batches(String what, Backlog backlog, String first, String second, int batches) {
        Offset a = first == null ? new At(A.formatted(0, 0)) : new At(first);
        Offset b = second == null ? new At(B.formatted(0)) : new At(second);
        System.out.println(what + ": unfinished " + backlog.unfinished());
        for (int batch = 0; batch < batches; batch++) {
            Offset next = backlog.end(0, a);
            Offset other = backlog.end(1, b);
            System.out.println((next == null ? null : next.json()) + " " + (other == null ? null : other.json())
                    + " unfinished " + backlog.unfinished());
            a = next;
            b = other;
        }
    }
}
