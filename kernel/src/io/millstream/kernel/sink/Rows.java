package io.millstream.kernel.sink;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Where a record that is to be written lies in a row: these columns, one after the other.
 *
 * <ul>
 *   <li>{@code topic} string
 *   <li>{@code key}, {@code value} binary, which may be NULL
 *   <li>{@code partition} int: a partitioner's choice; NULL: the producer's partitioner decides, by the key
 *   <li>{@code timestamp} bigint, milliseconds; NULL: now
 *   <li>{@code headers} array&lt;struct&lt;key string, value binary&gt;&gt;
 *   <li>{@code letter} struct&lt;key, value binary, topic string, partition int, offset bigint, place string&gt;: what
 *       a dead letter says about the record from which this one was made. The column may be missing. It may also have
 *       asked int, exception, message string, failed_key, failed_value binary: if asked is not NULL, the row is not to
 *       be written, but a failed record about which a handler is asked.
 * </ul>
 */
public record Rows(int topic, int letterFields) implements Serializable {

    /** The place of {@code asked} in a letter, if it has so many fields. */
    private static final int ASKED = 6;

    /** @param letterFields how many fields a letter has; 0 if there is no such column */
    public Rows {}

    public int key() {
        return topic + 1;
    }

    public int value() {
        return topic + 2;
    }

    public int partition() {
        return topic + 3;
    }

    private int timestamp() {
        return topic + 4;
    }

    private int headers() {
        return topic + 5;
    }

    private int letter() {
        return topic + 6;
    }

    /** The bytes of a column; a copy, because Spark reuses rows. */
    public static byte[] bytes(InternalRow row, int column) {
        return row.isNullAt(column) ? null : row.getBinary(column);
    }

    /** A time before 1970 becomes 1970: no Kafka producer writes an earlier one. */
    public Long timestampOf(InternalRow row) {
        return row.isNullAt(timestamp()) ? null : (Long) Math.max(0, row.getLong(timestamp()));
    }

    public List<Header> headersOf(InternalRow row) {
        if (row.isNullAt(headers())) {
            return null;
        }
        ArrayData array = row.getArray(headers());
        List<Header> all = new ArrayList<>(array.numElements());
        for (int i = 0; i < array.numElements(); i++) {
            InternalRow header = array.getStruct(i, 2);
            all.add(new NamedBytes(header.getUTF8String(0).toString(), bytes(header, 1)));
        }
        return all;
    }

    public DeadLetter letterOf(InternalRow row) {
        if (letterFields == 0 || row.isNullAt(letter())) {
            return null;
        }
        InternalRow source = row.getStruct(letter(), letterFields);
        boolean asks = letterFields > ASKED;
        return new DeadLetter(
                bytes(source, 0),
                bytes(source, 1),
                text(source, 2),
                source.isNullAt(3) ? -1 : source.getInt(3),
                source.isNullAt(4) ? -1 : source.getLong(4),
                text(source, 5),
                asks && !source.isNullAt(ASKED) ? source.getInt(ASKED) : DeadLetter.NOWHERE,
                asks ? text(source, 7) : null,
                asks ? text(source, 8) : null,
                asks ? bytes(source, 9) : null,
                asks ? bytes(source, 10) : null);
    }

    private static String text(InternalRow row, int column) {
        UTF8String text = row.getUTF8String(column);
        return text == null ? null : text.toString();
    }

    /** The question for a handler, if the row is one; or else null. */
    byte[] questionOf(InternalRow row) {
        if (letterFields <= ASKED || row.isNullAt(letter()) || row.getStruct(letter(), letterFields).isNullAt(ASKED)) {
            return null;
        }
        UTF8String to = row.getUTF8String(topic);
        Integer chosen = row.isNullAt(partition()) ? null : (Integer) row.getInt(partition());
        Long time = row.isNullAt(timestamp()) ? null : (Long) row.getLong(timestamp());
        return Question.failed(letterOf(row), to == null ? null : to.toString(), chosen, time, headersOf(row));
    }
}
