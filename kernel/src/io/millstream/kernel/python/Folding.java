package io.millstream.kernel.python;

import io.millstream.kernel.Constants;
import io.millstream.kernel.core.Folded;
import io.millstream.kernel.core.Folds;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.TaskContext;

/**
 * Lets Python compute aggregates: their inputs go to a worker, and the requested results come back. Python keeps
 * nothing. The other end, and the frames, are in millstream/spark/worker/folding.py.
 */
public final class Folding implements Folds.Computer {

    private final Program program;
    private Worker worker;

    /**
     * @param program has the functions to call; null if there is nothing to compute
     */
    public Folding(Program program) {
        this.program = program;
    }

    @Override
    public byte[][] compute(List<Folded> all) {
        Request request = new Request(all.size());
        all.forEach(request::add);
        byte[][] computed = new byte[all.size()][];
        try {
            if (worker == null || !worker.isTakenBy(TaskContext.get())) {
                worker = Worker.take(program);
            }
            byte[][] wanted = worker.call(request.message()).bytes(0, request.wanted);
            int next = 0;
            for (int i = 0; i < computed.length; i++) {
                computed[i] = all.get(i).isWanted() ? wanted[next++] : null;
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return computed;
    }

    private static final class Request {
        private final Map<Group, Integer> groups = new HashMap<>();
        private final List<byte[]> keys = new ArrayList<>();
        private final List<Integer> folds = new ArrayList<>();
        private final List<byte[]> kept = new ArrayList<>();
        private final List<byte[]> values = new ArrayList<>();
        private final int[] group;
        private final int[] before;
        private final int[] merged;
        private final int[] records;
        private final int[] how;
        private int wanted;

        private record Group(int fold, ByteBuffer key) {}

        Request(int count) {
            group = new int[count];
            before = new int[count];
            merged = new int[count];
            records = new int[count];
            how = new int[count];
        }

        void add(Folded one) {
            int i = one.number();
            group[i] = groups.computeIfAbsent(new Group(one.fold, ByteBuffer.wrap(one.key)), absent -> {
                keys.add(one.key);
                folds.add(one.fold);
                return keys.size() - 1;
            });
            before[i] = place(one.before());
            merged[i] = place(one.merged());
            records[i] = one.records().size();
            values.addAll(one.records());
            how[i] = (one.isWanted() ? Constants.FOLD_WANTED : 0) | (one.uses() > 1 ? Constants.FOLD_USED_AGAIN : 0);
            wanted += one.isWanted() ? 1 : 0;
        }

        /** Its place among those to compute or, after them, among the known ones. */
        private int place(Folded other) {
            if (other == null) {
                return Constants.NOTHING;
            }
            if (!other.isKnown()) {
                return other.number();
            }
            kept.add(other.bytes());
            return group.length + kept.size() - 1;
        }

        Message message() {
            return new Message(Constants.MESSAGE_REQUEST)
                    .add(keys.toArray(new byte[0][]))
                    .add(folds.stream().mapToInt(Integer::intValue).toArray())
                    .add(group)
                    .add(before)
                    .add(merged)
                    .add(records)
                    .add(how)
                    .add(values.toArray(new byte[0][]))
                    .add(kept.toArray(new byte[0][]));
        }
    }
}
