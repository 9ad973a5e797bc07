package io.millstream.kernel.task;

import io.millstream.kernel.sink.Rows;
import java.io.Serializable;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of the sink: `control` int; for each output a boolean, which is true if the row goes there, and the columns
 * of {@link Rows}; and if records can be dropped, `topic` string and `partition` int, from where the row's record is,
 * and a column for each place that drops some, with its name: a boolean, or for late ones an array of bigint, null if
 * the row is not late there.
 */
record TaskRows(int control, ArrayList<Rows> outputs, int topic, ArrayList<Place> places) implements Serializable {
    private static final int NONE = -1;
    /** The columns of an output, without those of a letter. */
    private static final int COLUMNS = 7;

    /** A place that drops records. */
    record Place(int column, String name, boolean isLate) implements Serializable {}

    static TaskRows in(StructType schema) {
        ArrayList<Rows> outputs = new ArrayList<>();
        int next = 1;
        while (next < schema.size() && schema.apply(next).dataType() instanceof BooleanType) {
            int topic = next + 1;
            next += COLUMNS;
            boolean hasLetter = next < schema.size() && schema.apply(next).dataType() instanceof StructType;
            outputs.add(new Rows(topic, hasLetter ? ((StructType) schema.apply(next++).dataType()).size() : 0));
        }
        ArrayList<Place> places = new ArrayList<>();
        for (int i = next + 2; i < schema.size(); i++) {
            places.add(new Place(i, schema.apply(i).name(), schema.apply(i).dataType() instanceof ArrayType));
        }
        return new TaskRows(schema.fieldIndex("control"), outputs, places.isEmpty() ? NONE : next, places);
    }

    /** Count what was dropped of a row. */
    void count(InternalRow row, Figures figures) {
        for (Place place : places) {
            if (row.isNullAt(place.column)) {
                continue;
            }
            if (place.isLate) {
                ArrayData how = row.getArray(place.column);
                figures.late(place.name, how.toLongArray());
            } else if (row.getBoolean(place.column)) {
                String from = row.isNullAt(topic) ? null : row.getUTF8String(topic) + "-" + row.getInt(topic + 1);
                figures.dropped(place.name, from);
            }
        }
    }

    /** Whether a row goes to an output. */
    static boolean goesTo(Rows output, InternalRow row) {
        int flag = output.topic() - 1;
        return !row.isNullAt(flag) && row.getBoolean(flag);
    }
}
