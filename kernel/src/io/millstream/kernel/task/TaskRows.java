package io.millstream.kernel.task;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of the sink: `control` int, and for each output a struct, null if the row does not go there: topic string,
 * key binary, value binary, partition int, timestamp bigint, headers array of structs.
 */
record TaskRows(int control, int outputs, int fields) implements Serializable {
    static TaskRows in(StructType schema) {
        int fields = schema.size() < 2 ? 0 : ((StructType) schema.apply(1).dataType()).size();
        return new TaskRows(schema.fieldIndex("control"), schema.size() - 1, fields);
    }

    /** The record for an output; null if there is none. */
    ProducerRecord<byte[], byte[]> record(InternalRow row, int output) {
        if (row.isNullAt(1 + output)) {
            return null;
        }
        InternalRow struct = row.getStruct(1 + output, fields);
        return new ProducerRecord<>(
                struct.getUTF8String(0).toString(),
                struct.isNullAt(3) ? null : (Integer) struct.getInt(3),
                struct.isNullAt(4) ? null : (Long) Math.max(0, struct.getLong(4)),
                struct.isNullAt(1) ? null : struct.getBinary(1),
                struct.isNullAt(2) ? null : struct.getBinary(2),
                headers(struct));
    }

    private static List<Header> headers(InternalRow struct) {
        if (struct.isNullAt(5)) {
            return null;
        }
        ArrayData array = struct.getArray(5);
        List<Header> all = new ArrayList<>(array.numElements());
        for (int i = 0; i < array.numElements(); i++) {
            InternalRow header = array.getStruct(i, 2);
            all.add(new RecordHeader(
                    header.getUTF8String(0).toString(), header.isNullAt(1) ? null : header.getBinary(1)));
        }
        return all;
    }
}
