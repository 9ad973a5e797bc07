package io.millstream.kernel.state;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The parts of an aggregation in its input rows. */
final class PartsOfRows {
    private final int[] columns;
    private final DataType[] types;
    /** Whether the core uses the same form as the row. */
    private final boolean[] isPlain;

    PartsOfRows(Plan.Item item) {
        columns = item.columns().stream().mapToInt(Integer::intValue).toArray();
        types = item.types().toArray(new DataType[0]);
        isPlain = new boolean[types.length];
        for (int i = 0; i < types.length; i++) {
            isPlain[i] = item.isOpaque() || !(types[i] instanceof StructType || types[i] instanceof ArrayType);
        }
    }

    Object[] read(Row row) {
        Object[] parts = new Object[columns.length];
        for (int i = 0; i < parts.length; i++) {
            Object value = row.get(columns[i]);
            parts[i] = isPlain[i] ? value : Values.read(value, types[i]);
        }
        return parts;
    }

    /** Puts the parts into their places in a row. */
    void write(Object[] parts, Object[] row) {
        for (int i = 0; i < parts.length; i++) {
            row[columns[i]] = Values.write(parts[i], types[i]);
        }
    }
}
