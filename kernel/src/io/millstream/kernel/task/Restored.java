package io.millstream.kernel.task;

import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.ToLongFunction;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/** What the state of a task has from its changelogs. */
final class Restored {
    /** A changelog keeps deletions for longer. */
    private static final long RECENT_MS = Long.getLong("millstream.kernel.recent.ms", 3_600_000);

    private final TaskPlan plan;
    private final State state;
    private boolean isOutdated;

    Restored(TaskPlan plan, State state) {
        this.plan = plan;
        this.state = state;
    }

    /**
     * Forgets the state if a store has a position that cannot be gone on from.
     *
     * @param stores their numbers
     * @param begins the first offsets of their changelogs
     * @param ends the next ones
     * @param deletionsKeptMs for how long a topic keeps deletions
     */
    void check(
            Map<TopicPartition, Integer> stores,
            Map<TopicPartition, Long> begins,
            Map<TopicPartition, Long> ends,
            ToLongFunction<String> deletionsKeptMs) {
        stores.entrySet().stream()
                .map(each -> misplaced(
                        each.getValue(),
                        each.getKey(),
                        begins.get(each.getKey()),
                        ends.get(each.getKey()),
                        deletionsKeptMs))
                .filter(Objects::nonNull)
                .findFirst()
                .ifPresent(state::wipe);
    }

    /** What is wrong with the position that a store has in its changelog; null if nothing is. */
    private String misplaced(
            int store, TopicPartition changelog, long begin, long end, ToLongFunction<String> deletionsKeptMs) {
        long position = state.position(store);
        String name = plan.stores().get(store).name();
        if (position > end || position > 0 && position < begin) {
            return "store '" + name + "' is at offset " + position + " of " + changelog + ", which has those from "
                    + begin + " to " + end;
        }
        long age = state.age(store);
        boolean isBehind = position > 0 && end > position + 1; // 1: the end of the transaction
        if (isBehind && age > RECENT_MS && age > deletionsKeptMs.applyAsLong(changelog.topic())) {
            return "store '" + name + "' was written " + age / 1_000
                    + " s ago, and its changelog does not keep deletions for so long";
        }
        return null;
    }

    /**
     * Keeps records of a store's changelog, and that it is complete up to this offset.
     *
     * @param isOurs whether they are from a changelog, not from a topic that others write
     */
    void keep(int store, List<ConsumerRecord<byte[], byte[]>> records, long position, boolean isOurs) {
        LaidOut laidOut = LaidOut.of(state, store, plan.stores().get(store).layout());
        if (laidOut != null) {
            records.forEach(record -> laidOut.restore(record.key(), record.value(), record.timestamp()));
            state.restored(store, position);
            return;
        }
        if (Held.isFormOf(plan.stores().get(store))) {
            keepHeld(store, records, position);
            return;
        }
        List<Map.Entry<byte[], byte[]>> entries = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.key() == null) { // of a source
                continue;
            }
            entries.add(new AbstractMap.SimpleImmutableEntry<>(record.key(), Logged.value(record, isOurs)));
        }
        boolean isOfProcessors = !plan.stores().get(store).layout().isEmpty(); // nothing follows from them
        outdate(!entries.isEmpty() && !isOfProcessors);
        state.restored(store, entries, position);
    }

    /** A deletion may not say the whole name of what is kept: then that is looked for among what came before. */
    private void keepHeld(int store, List<ConsumerRecord<byte[], byte[]>> records, long position) {
        outdate(!records.isEmpty());
        List<Map.Entry<byte[], byte[]>> entries = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            Map.Entry<byte[], byte[]> entry = Held.entry(plan.stores().get(store), record, (key, start) -> {
                state.restored(store, entries, state.position(store));
                entries.clear();
                return find(store, key, start);
            });
            if (entry != null) {
                entries.add(entry);
            }
        }
        state.restored(store, entries, position);
    }

    /** The name of a window that is held back. */
    private byte[] find(int store, byte[] key, byte[] start) {
        byte[][] found = new byte[1][];
        state.range(store, key, State.after(key), (name, value) -> {
            boolean isSame = name.length == key.length + 2 * Long.BYTES
                    && Arrays.equals(name, name.length - start.length, name.length, start, 0, start.length);
            found[0] = isSame ? name : found[0];
        });
        return found[0];
    }

    /** Notes, before the first entries are kept, that what follows from them is missing. */
    private void outdate(boolean isChanging) {
        if (isChanging && !isOutdated && plan.local() >= 0) {
            isOutdated = true;
            Derived.outdate(state, plan.local());
            state.committed(new long[plan.stores().size()]);
        }
    }
}
