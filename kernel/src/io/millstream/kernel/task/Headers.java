package io.millstream.kernel.task;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The headers of a record as bytes, which operators carry, keep and pack more cheaply than rows. Null for none.
 *
 * <p>Each header is the length of its name in UTF-8, the name, the length of its value, and the value; -1 for null.
 */
public final class Headers {
    private static final int NOTHING = -1;
    private static final DataType TYPE = DataTypes.createArrayType(
            new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType));

    private Headers() {}

    /** Bytes of headers. */
    public static Column packed(Column headers) {
        UDF1<scala.collection.Iterable<Row>, byte[]> packed = Headers::packed;
        return unlessNull(headers, functions.udf(packed, DataTypes.BinaryType).apply(headers));
    }

    /** Headers from such bytes. */
    public static Column unpacked(Column bytes) {
        UDF1<byte[], scala.collection.Iterable<Row>> unpacked = Headers::unpacked;
        return unlessNull(bytes, functions.udf(unpacked, TYPE).apply(bytes));
    }

    /** Most records have no headers: then the function is not called. */
    private static Column unlessNull(Column asked, Column made) {
        return functions.when(asked.isNotNull(), made);
    }

    private static byte[] packed(scala.collection.Iterable<Row> headers) {
        List<Row> all = new ArrayList<>();
        CollectionConverters.asJava(headers).forEach(all::add);
        if (all.isEmpty()) {
            return null;
        }
        byte[][] names = new byte[all.size()][];
        int size = 0;
        for (int i = 0; i < names.length; i++) {
            names[i] = all.get(i).getString(0).getBytes(StandardCharsets.UTF_8);
            byte[] value = (byte[]) all.get(i).get(1);
            size += 2 * Integer.BYTES + names[i].length + (value == null ? 0 : value.length);
        }
        ByteBuffer bytes = ByteBuffer.allocate(size);
        for (int i = 0; i < names.length; i++) {
            bytes.putInt(names[i].length).put(names[i]);
            byte[] value = (byte[]) all.get(i).get(1);
            if (value == null) {
                bytes.putInt(NOTHING);
            } else {
                bytes.putInt(value.length).put(value);
            }
        }
        return bytes.array();
    }

    private static scala.collection.Iterable<Row> unpacked(byte[] headers) {
        if (headers.length == 0) {
            return null;
        }
        ByteBuffer bytes = ByteBuffer.wrap(headers);
        List<Row> all = new ArrayList<>();
        while (bytes.hasRemaining()) {
            String name = new String(next(bytes, bytes.getInt()), StandardCharsets.UTF_8);
            int length = bytes.getInt();
            all.add(RowFactory.create(name, length == NOTHING ? null : next(bytes, length)));
        }
        return CollectionConverters.asScala(all);
    }

    private static byte[] next(ByteBuffer bytes, int length) {
        byte[] next = new byte[length];
        bytes.get(next);
        return next;
    }
}
