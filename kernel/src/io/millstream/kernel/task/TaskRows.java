package io.millstream.kernel.task;

import io.millstream.kernel.sink.Rows;
import java.io.Serializable;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of the sink: `control` int; for each output a struct, null if the row does not go there, as {@link Rows} has
 * it; and if records can be dropped, `topic` string and `partition` int, from where the row's record is, and a column
 * for each place that drops some, with its name: a boolean, or for late ones an array of bigint, null if the row is
 * not late there.
 */
record TaskRows(int control, int outputs, int fields, Rows record, int topic, ArrayList<Place> places)
        implements Serializable {
    private static final int NONE = -1;

    /** A place that drops records. */
    record Place(int column, String name, boolean isLate) implements Serializable {}

    static TaskRows in(StructType schema) {
        int outputs = 1;
        StructType first = null;
        while (outputs < schema.size() && schema.apply(outputs).dataType() instanceof StructType each) {
            first = each;
            outputs++;
        }
        ArrayList<Place> places = new ArrayList<>();
        for (int i = outputs + 2; i < schema.size(); i++) {
            places.add(new Place(i, schema.apply(i).name(), schema.apply(i).dataType() instanceof ArrayType));
        }
        return new TaskRows(
                schema.fieldIndex("control"),
                outputs - 1,
                first == null ? 0 : first.size(),
                first == null ? null : Rows.in(first),
                places.isEmpty() ? NONE : outputs,
                places);
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

    /** What goes to an output; null if nothing does. */
    InternalRow output(InternalRow row, int output) {
        return row.isNullAt(1 + output) ? null : row.getStruct(1 + output, fields);
    }
}
