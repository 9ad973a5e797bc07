package io.millstream.kernel.task;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A record of Kafka, or a control, as a row of Spark: one object for all of a task's, which Spark does not keep. */
@SuppressWarnings("super")
final class RecordRow extends GenericInternalRow {
    private static final long serialVersionUID = 1;

    static final StructType SCHEMA = new StructType()
            .add("control", DataTypes.IntegerType, false)
            .add("key", DataTypes.BinaryType)
            .add("value", DataTypes.BinaryType)
            .add("topic", DataTypes.StringType)
            .add("partition", DataTypes.IntegerType)
            .add("offset", DataTypes.LongType)
            .add("timestamp", DataTypes.LongType)
            .add(
                    "headers",
                    DataTypes.createArrayType(new StructType()
                            .add("key", DataTypes.StringType)
                            .add("value", DataTypes.BinaryType)));

    private static final int CONTROL = 0;
    private static final int PARTITION = 4;
    private static final int OFFSET = 5;
    private static final int TIMESTAMP = 6;
    private static final int HEADERS = 7;

    private transient ConsumerRecord<byte[], byte[]> record;
    private transient UTF8String topic;
    private long timestamp;
    private int control;

    RecordRow() {
        super(new Object[SCHEMA.size()]);
    }

    /** @param ofTimestamp its time, which a timestamp extractor may have given it */
    RecordRow of(ConsumerRecord<byte[], byte[]> of, UTF8String ofTopic, long ofTimestamp) {
        return of(of, ofTopic, ofTimestamp, RunningTask.RECORD);
    }

    RecordRow of(ConsumerRecord<byte[], byte[]> of, UTF8String ofTopic, long ofTimestamp, int ofControl) {
        record = of;
        topic = ofTopic;
        timestamp = ofTimestamp;
        control = ofControl;
        return this;
    }

    RecordRow of(int ofControl) {
        record = null;
        topic = null;
        control = ofControl;
        return this;
    }

    int control() {
        return control;
    }

    @Override
    public int numFields() {
        return SCHEMA.size();
    }

    @Override
    public Object genericGet(int column) {
        if (column == CONTROL) {
            return control;
        }
        if (record == null) {
            return null;
        }
        return switch (column) {
            case 1 -> record.key();
            case 2 -> record.value();
            case 3 -> topic;
            case PARTITION -> record.partition();
            case OFFSET -> record.offset();
            case TIMESTAMP -> timestamp;
            case HEADERS -> headers();
            default -> throw new IndexOutOfBoundsException(column);
        };
    }

    private Object headers() {
        Header[] all = record.headers().toArray();
        if (all.length == 0) {
            return null;
        }
        Object[] rows = new Object[all.length];
        for (int i = 0; i < rows.length; i++) {
            rows[i] = new GenericInternalRow(new Object[] {UTF8String.fromString(all[i].key()), all[i].value()});
        }
        return new GenericArrayData(rows);
    }

    @Override
    public boolean isNullAt(int column) {
        if (column == CONTROL || record == null) {
            return column != CONTROL;
        }
        return switch (column) {
            case 1 -> record.key() == null;
            case 2 -> record.value() == null;
            case HEADERS -> record.headers().toArray().length == 0;
            default -> false;
        };
    }

    @Override
    public int getInt(int column) {
        return column == CONTROL ? control : record.partition();
    }

    @Override
    public long getLong(int column) {
        return column == OFFSET ? record.offset() : timestamp;
    }

    @Override
    public void setNullAt(int column) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void update(int column, Object value) {
        throw new UnsupportedOperationException();
    }

    @Override
    public GenericInternalRow copy() {
        Object[] values = new Object[SCHEMA.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = genericGet(i);
        }
        return new GenericInternalRow(values);
    }
}
