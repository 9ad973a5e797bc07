package io.millstream.kernel.serdes;

import java.util.Base64;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Writes values of one type that are not null: in the bytes that Spark's {@code to_json} has for them. */
interface JsonFromSpark {
    /**
     * Append a value.
     *
     * @throws UnwritableException no reader would take it
     */
    void write(Object value, JsonOut out);

    default void apply(Object value, JsonOut out) {
        if (value == null) {
            out.ascii("null");
        } else {
            write(value, out);
        }
    }

    static JsonFromSpark of(DataType type) {
        if (type instanceof StructType struct) {
            return ofStruct(struct);
        } else if (type instanceof ArrayType array) {
            return ofArray(of(array.elementType()), array.elementType());
        } else if (type instanceof MapType map) {
            return ofMap(of(map.valueType()), map);
        } else if (type instanceof StringType) {
            return (value, out) -> out.quoted((UTF8String) value);
        } else if (type instanceof DecimalType) {
            return (value, out) -> out.ascii(((Decimal) value).toJavaBigDecimal().toString());
        }
        return switch (type.typeName()) {
            case "boolean", "byte", "short", "integer", "long" -> (value, out) -> out.ascii(value.toString());
            case "float" -> (value, out) -> floating(JsonNumbers.text((Float) value), out);
            case "double" -> (value, out) -> floating(JsonNumbers.text((Double) value), out);
            case "binary" -> (value, out) -> inQuotes(Base64.getEncoder().encodeToString((byte[]) value), out);
            case "date" -> (value, out) -> inQuotes(JsonTime.dateText((Integer) value), out);
            case "timestamp" -> (value, out) -> inQuotes(JsonTime.timeText((Long) value, "TIMESTAMP") + "Z", out);
            case "timestamp_ntz" -> (value, out) -> inQuotes(JsonTime.timeText((Long) value, "TIMESTAMP_NTZ"), out);
            case "void" -> (value, out) -> out.ascii("null");
            default -> throw new IllegalArgumentException("the kernel does not write JSON of the type " + type.sql());
        };
    }

    private static void inQuotes(String text, JsonOut out) {
        out.write('"');
        out.ascii(text);
        out.write('"');
    }

    private static void floating(String text, JsonOut out) {
        if (text.endsWith("y") || text.endsWith("N")) { // Infinity, NaN
            inQuotes(text, out);
        } else {
            out.ascii(text);
        }
    }

    private static JsonFromSpark ofStruct(StructType type) {
        JsonFromSpark[] fields = new JsonFromSpark[type.size()];
        DataType[] types = new DataType[fields.length];
        byte[][] begins = new byte[fields.length][];
        for (int i = 0; i < fields.length; i++) {
            types[i] = type.apply(i).dataType();
            fields[i] = of(types[i]);
            JsonOut begin = new JsonOut();
            begin.quoted(UTF8String.fromString(type.apply(i).name()));
            begin.write(':');
            begins[i] = begin.toBytes();
        }
        return (value, out) -> {
            InternalRow row = (InternalRow) value;
            out.write('{');
            boolean first = true;
            for (int i = 0; i < fields.length; i++) {
                if (!row.isNullAt(i)) {
                    if (!first) {
                        out.write(',');
                    }
                    first = false;
                    out.bytes(begins[i], 0, begins[i].length);
                    fields[i].write(row.get(i, types[i]), out);
                }
            }
            out.write('}');
        };
    }

    private static JsonFromSpark ofArray(JsonFromSpark element, DataType type) {
        return (value, out) -> {
            ArrayData array = (ArrayData) value;
            out.write('[');
            for (int i = 0; i < array.numElements(); i++) {
                if (i > 0) {
                    out.write(',');
                }
                element.apply(array.isNullAt(i) ? null : array.get(i, type), out);
            }
            out.write(']');
        };
    }

    private static JsonFromSpark ofMap(JsonFromSpark element, MapType type) {
        return (value, out) -> {
            ArrayData keys = ((MapData) value).keyArray();
            ArrayData values = ((MapData) value).valueArray();
            out.write('{');
            for (int i = 0; i < keys.numElements(); i++) {
                if (i > 0) {
                    out.write(',');
                }
                Object key = keys.get(i, type.keyType());
                out.quoted(key instanceof UTF8String text ? text : UTF8String.fromString(key.toString()));
                out.write(':');
                element.apply(values.isNullAt(i) ? null : values.get(i, type.valueType()), out);
            }
            out.write('}');
        };
    }
}
