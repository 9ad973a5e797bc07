package io.millstream.kernel.serdes;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.util.Utf8;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Converts Avro's values to those in Spark's rows. Python decides about the types (serdes/avro_types.py). */
interface AvroToSpark {
    /** Of the years 1 to 9999, since 1970. */
    long FIRST_DAY = -719_162;

    long LAST_DAY = 2_932_896;
    long DAY = 86_400_000_000L;
    /** No decimal of 38 digits, the most that Spark has, needs more. */
    int MOST_BITS = 127;

    Pattern UUID = Pattern.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");

    Object of(Object value);

    default Object apply(Object value) {
        return value == null ? null : of(value);
    }

    static AvroToSpark of(Schema given, DataType type) {
        if (given.getType() == Schema.Type.UNION) {
            List<Schema> members = AvroFromSpark.members(given);
            return type instanceof StructType struct && AvroFromSpark.isOfMembers(members, struct)
                    ? ofUnion(given, members, struct)
                    : members.size() == 1 ? of(members.get(0), type) : ofNumbers(type);
        }
        return switch (given.getType()) {
            case RECORD -> ofRecord(given, (StructType) type);
            case ARRAY -> ofArray(of(given.getElementType(), ((ArrayType) type).elementType()));
            case MAP -> ofMap(of(given.getValueType(), ((MapType) type).valueType()));
            case STRING -> given.getLogicalType() instanceof LogicalTypes.Uuid ? AvroToSpark::uuid : AvroToSpark::text;
            case ENUM -> value -> UTF8String.fromString(value.toString());
            case BYTES -> given.getLogicalType() instanceof LogicalTypes.Decimal decimal
                    ? value -> decimal(decimal, bytes((ByteBuffer) value)) : value -> bytes((ByteBuffer) value);
            case FIXED -> given.getLogicalType() instanceof LogicalTypes.Decimal decimal
                    ? value -> decimal(decimal, ((GenericFixed) value).bytes())
                    : value -> ((GenericFixed) value).bytes();
            case INT, LONG -> ofTime(given.getLogicalType());
            default -> value -> value;
        };
    }

    /** Numbers that stand for times. Those that Python has no value for are refused: it reads what Spark has read. */
    private static AvroToSpark ofTime(LogicalType type) {
        if (type instanceof LogicalTypes.Date) {
            return value -> within(((Number) value).longValue(), FIRST_DAY, LAST_DAY, value);
        }
        if (type instanceof LogicalTypes.TimestampMillis || type instanceof LogicalTypes.LocalTimestampMillis) {
            return value -> within((Long) value, FIRST_DAY * DAY / 1000, (LAST_DAY + 1) * DAY / 1000 - 1,
                    (Long) value * 1000);
        }
        if (type instanceof LogicalTypes.TimestampMicros || type instanceof LogicalTypes.LocalTimestampMicros) {
            return value -> within((Long) value, FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1, value);
        }
        if (type instanceof LogicalTypes.TimeMillis) {
            return value -> within(((Number) value).longValue(), 0, DAY / 1000 - 1, value);
        }
        return type instanceof LogicalTypes.TimeMicros ? value -> within((Long) value, 0, DAY - 1, value)
                : value -> value;
    }

    private static Object within(long number, long least, long most, Object value) {
        if (number < least || number > most) {
            throw new UnreadableException("Avro whose times are of a day, or of the years 1 to 9999");
        }
        return value;
    }

    private static AvroToSpark ofRecord(Schema schema, StructType type) {
        AvroToSpark[] fields = new AvroToSpark[type.size()];
        for (int i = 0; i < fields.length; i++) {
            fields[i] = of(schema.getFields().get(i).schema(), type.apply(i).dataType());
        }
        return value -> {
            IndexedRecord record = (IndexedRecord) value;
            Object[] row = new Object[fields.length];
            for (int i = 0; i < row.length; i++) {
                row[i] = fields[i].apply(record.get(i));
            }
            return new GenericInternalRow(row);
        };
    }

    private static AvroToSpark ofUnion(Schema union, List<Schema> members, StructType type) {
        List<AvroToSpark> each = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            each.add(of(members.get(i), type.apply(i).dataType()));
        }
        return value -> {
            Schema is = union.getTypes().get(GenericData.get().resolveUnion(union, value));
            Object[] row = new Object[each.size()];
            int at = members.indexOf(is);
            row[at] = each.get(at).apply(value);
            return new GenericInternalRow(row);
        };
    }

    private static AvroToSpark ofNumbers(DataType type) {
        return type.equals(org.apache.spark.sql.types.DataTypes.DoubleType)
                ? value -> ((Number) value).doubleValue() : value -> ((Number) value).longValue();
    }

    private static AvroToSpark ofArray(AvroToSpark item) {
        return value -> new GenericArrayData(((Collection<?>) value).stream().map(item::apply).toArray());
    }

    private static AvroToSpark ofMap(AvroToSpark item) {
        return value -> {
            Map<?, ?> map = (Map<?, ?>) value;
            Object[] keys = new Object[map.size()];
            Object[] values = new Object[map.size()];
            int at = 0;
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                keys[at] = text(entry.getKey());
                values[at++] = item.apply(entry.getValue());
            }
            return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
        };
    }

    private static Object text(Object value) {
        if (!(value instanceof Utf8 utf8)) {
            return UTF8String.fromString(value.toString());
        }
        // Its bytes are Avro's buffer, which may be longer than the text.
        UTF8String text = UTF8String.fromBytes(utf8.getBytes(), 0, utf8.getByteLength()).copy();
        if (!text.isValid()) {
            throw new UnreadableException("Avro whose texts are UTF-8");
        }
        return text;
    }

    private static Object uuid(Object value) {
        String text = value.toString();
        if (!UUID.matcher(text).matches()) {
            throw new UnreadableException("Avro whose UUIDs have 36 characters");
        }
        return UTF8String.fromString(text.toLowerCase(Locale.ROOT));
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static Decimal decimal(LogicalTypes.Decimal type, byte[] bytes) {
        BigInteger unscaled = new BigInteger(bytes);
        if (unscaled.bitLength() > MOST_BITS) { // before its digits are counted, which takes seconds for 100 KB
            throw new UnreadableException("Avro whose decimals have the digits that its schema says");
        }
        BigDecimal number = new BigDecimal(unscaled, type.getScale());
        return Decimal.apply(number, type.getPrecision(), type.getScale());
    }
}
