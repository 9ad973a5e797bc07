package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** The global tables that the tasks of a run look rows up in. */
public final class Globals implements AutoCloseable {
    private final List<TaskPlan.Global> topics;
    private final List<GlobalTable> tables = new ArrayList<>();

    /** Takes all of them, when they are read up to their ends. */
    Globals(TaskPlan plan) {
        topics = plan.globals();
        try {
            plan.globals().forEach(each -> tables.add(GlobalTable.of(plan, each)));
        } catch (RuntimeException | Error error) {
            close();
            throw error;
        }
    }

    /**
     * The value of a key in a global table, in bytes; NULL if there is none.
     *
     * @param table its number among those of the run
     * @param key in bytes; NULL has no value
     */
    public static Column lookup(int table, Column key) {
        // Not deterministic, so that Spark looks a row up once for each record.
        return functions.udf(new Lookup(table), DataTypes.BinaryType)
                .asNondeterministic()
                .apply(key);
    }

    private static final class Lookup implements UDF1<byte[], byte[]> {
        private static final long serialVersionUID = 1;
        private final int table;
        private transient GlobalTable found;

        Lookup(int table) {
            this.table = table;
        }

        @Override
        @SuppressWarnings("resource") // the task stays open
        public byte[] call(byte[] key) {
            if (key == null) {
                return null;
            }
            if (found == null) {
                found = Tasks.current().globals.table(table);
            }
            byte[] stamped = found.get(key);
            return stamped == null ? null : Arrays.copyOfRange(stamped, Long.BYTES, stamped.length);
        }
    }

    /** The one with this number. */
    GlobalTable table(int number) {
        return tables.get(number);
    }

    /** Takes a record that a program gives; whether it is one of these tables'. */
    boolean take(ConsumerRecord<byte[], byte[]> record) {
        boolean isTheirs = false;
        for (int i = 0; i < tables.size(); i++) {
            if (topics.get(i).topic().equals(record.topic())) {
                tables.get(i).put(List.of(record), Map.of());
                isTheirs = true;
            }
        }
        return isTheirs;
    }

    @Override
    public void close() {
        tables.forEach(GlobalTable::close);
        tables.clear();
    }
}
