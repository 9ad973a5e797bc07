package io.millstream.kernel.state;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Counts of keys, combined before the shuffle. Each line of the input is a record: its key and, after a space, its
 * headers, if it has any. Each line of the output is a row: key, count, and the headers in hex. Argument: how many keys
 * are in memory at a time.
 */
public final class CombinedMain {
    private CombinedMain() {}

    public static void main(String[] arguments) {
        StructType schema = new StructType()
                .add("tag", DataTypes.IntegerType)
                .add("key", DataTypes.BinaryType)
                .add("at", DataTypes.LongType)
                .add("headers", DataTypes.BinaryType)
                .add("n", DataTypes.LongType);
        String description = "[{\"core\":\"whole\",\"settings\":{},\"at_once\":false,"
                + "\"parts\":[{\"name\":\"n\",\"rule\":\"sum\"}]}]";
        List<Row> records = new ArrayList<>();
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).lines().forEach(line -> {
            String[] record = line.split(" ");
            byte[] headers = record.length < 2 ? null : record[1].getBytes(StandardCharsets.UTF_8);
            records.add(RowFactory.create(0, record[0].getBytes(StandardCharsets.UTF_8), 0L, headers, 1L));
        });
        Combined combined =
                new Combined(Plan.of(description, schema), schema.size(), Integer.parseInt(arguments[0]));
        for (Iterator<Row> rows = combined.call(records.iterator()); rows.hasNext(); ) {
            Row row = rows.next();
            String headers = row.isNullAt(3) ? "" : HexFormat.of().formatHex((byte[]) row.get(3));
            String key = new String((byte[]) row.get(1), StandardCharsets.UTF_8);
            System.out.println(key + " " + row.get(4) + " " + headers);
        }
    }
}
