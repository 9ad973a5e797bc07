package io.millstream.kernel.serdes;

import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads the JSON of one type: a value that is not null, into what Spark's rows have. */
interface JsonToSpark {
    /**
     * The value at a place.
     *
     * @throws JsonMisfit it is of another type
     * @throws UnreadableException it is not JSON
     */
    Object read(JsonCursor in);

    default Object apply(JsonCursor in) {
        return in.isNull() ? null : read(in);
    }

    static JsonToSpark of(DataType type) {
        if (type instanceof StructType struct) {
            return new OfStruct(struct);
        } else if (type instanceof ArrayType array) {
            return ofArray(of(array.elementType()), type.sql());
        } else if (type instanceof MapType map) {
            return ofMap(of(map.valueType()), type.sql());
        } else if (type instanceof StringType) {
            return JsonToSpark::text;
        } else if (type instanceof DecimalType decimal) {
            return in -> decimal(in, decimal);
        }
        return switch (type.typeName()) {
            case "boolean" -> JsonToSpark::bool;
            case "byte" -> in -> (byte) whole(in, "TINYINT", Byte.MIN_VALUE, Byte.MAX_VALUE);
            case "short" -> in -> (short) whole(in, "SMALLINT", Short.MIN_VALUE, Short.MAX_VALUE);
            case "integer" -> in -> (int) whole(in, "INT", Integer.MIN_VALUE, Integer.MAX_VALUE);
            case "long" -> in -> whole(in, "BIGINT", Long.MIN_VALUE, Long.MAX_VALUE);
            // By way of a double, as Python has to.
            case "float" -> in -> (float) floating(in, "FLOAT");
            case "double" -> in -> floating(in, "DOUBLE");
            case "binary" -> JsonToSpark::binary;
            case "date" -> in -> JsonTime.date(in.peek() == '"' ? in.text().toString() : null);
            case "timestamp" -> JsonToSpark::timestamp;
            case "timestamp_ntz" -> in -> JsonTime.clock(in.peek() == '"' ? in.text().toString() : null);
            case "void" -> in -> {
                throw new JsonMisfit("VOID");
            };
            default -> throw new IllegalArgumentException("the kernel does not read JSON of the type " + type.sql());
        };
    }

    private static Object bool(JsonCursor in) {
        if (in.peek() != 't' && in.peek() != 'f') {
            throw new JsonMisfit("BOOLEAN");
        }
        return in.isTrue();
    }

    private static long whole(JsonCursor in, String wanted, long least, long most) {
        Long value = in.isNumber() ? JsonNumbers.whole(in.number()) : null;
        if (value == null || value < least || value > most) {
            throw new JsonMisfit(wanted);
        }
        return value;
    }

    private static double floating(JsonCursor in, String wanted) {
        if (in.isNumber()) {
            return JsonNumbers.floating(in.number());
        }
        Double named = in.peek() == '"' ? JsonNumbers.NOT_FINITE.get(in.text().toString()) : null;
        if (named == null) {
            throw new JsonMisfit(wanted);
        }
        return named;
    }

    private static Object decimal(JsonCursor in, DecimalType type) {
        boolean isText = in.peek() == '"';
        String text = isText ? in.text().toString() : in.isNumber() ? in.number() : "";
        Decimal number = JsonNumbers.decimal(text, type.precision(), type.scale());
        if (number != null) {
            return number;
        }
        throw isText && text.indexOf(',') >= 0
                ? new JsonMisfit(type.sql(), "this is text with a comma: read STRING, then replace it and cast")
                : new JsonMisfit(type.sql());
    }

    /** Of other JSON than text, that JSON. */
    private static Object text(JsonCursor in) {
        if (in.peek() == '"') {
            return in.text();
        }
        JsonOut out = new JsonOut();
        in.copy(out);
        return UTF8String.fromBytes(out.toBytes());
    }

    @SuppressWarnings("unused") // the error quotes a character
    private static Object binary(JsonCursor in) {
        UTF8String text = in.peek() == '"' ? in.text() : null;
        if (text == null || text.numBytes() % 4 != 0) { // Java's decoder does not miss the signs at the end
            throw new JsonMisfit("BINARY");
        }
        try {
            return Base64.getDecoder().decode(text.getBytes());
        } catch (IllegalArgumentException error) {
            throw new JsonMisfit("BINARY");
        }
    }

    private static Object timestamp(JsonCursor in) {
        if (!in.isNumber()) {
            return JsonTime.timestamp(in.peek() == '"' ? in.text().toString() : null);
        }
        long seconds = whole(in, "TIMESTAMP", Long.MIN_VALUE, Long.MAX_VALUE);
        if (seconds < JsonTime.LEAST_SECONDS || seconds > JsonTime.MOST_SECONDS) {
            throw new JsonMisfit("TIMESTAMP", "this number of seconds is beyond the years 1 to 9999; "
                    + "milliseconds? read BIGINT, then F.timestamp_millis");
        }
        return seconds * 1_000_000;
    }

    private static JsonToSpark ofArray(JsonToSpark element, String shown) {
        return in -> {
            if (in.peek() != '[') {
                throw new JsonMisfit(shown);
            }
            List<Object> elements = new ArrayList<>();
            try {
                for (boolean more = in.enter(']'); more; more = in.next(']')) {
                    elements.add(element.apply(in));
                }
            } catch (JsonMisfit misfit) {
                throw misfit.within("[]");
            }
            return new GenericArrayData(elements.toArray());
        };
    }

    private static JsonToSpark ofMap(JsonToSpark value, String shown) {
        return in -> {
            if (in.peek() != '{') {
                throw new JsonMisfit(shown);
            }
            Map<UTF8String, Object> entries = new LinkedHashMap<>();
            for (boolean more = in.enter('}'); more; more = in.next('}')) {
                entries.put(in.name(), orMisfit(value, in));
            }
            for (Object each : entries.values()) {
                if (each instanceof JsonMisfit misfit) {
                    throw misfit.within("[]"); // not with the key, which is the record's
                }
            }
            return new ArrayBasedMapData(
                    new GenericArrayData(entries.keySet().toArray()), new GenericArrayData(entries.values().toArray()));
        };
    }

    /** A value, or that it does not fit: of fields with the same name, only the last counts. */
    private static Object orMisfit(JsonToSpark value, JsonCursor in) {
        JsonCursor.Mark start = in.mark();
        try {
            return value.apply(in);
        } catch (JsonMisfit misfit) {
            in.back(start);
            in.copy(null);
            return misfit;
        }
    }

    /** The fields of a struct, wherever they are in an object, and whatever else is there. */
    final class OfStruct implements JsonToSpark {
        private final String shown;
        private final String[] called;
        private final UTF8String[] names;
        private final JsonToSpark[] fields;
        private final Map<UTF8String, Integer> places = new HashMap<>();

        OfStruct(StructType type) {
            shown = type.sql();
            called = type.fieldNames();
            names = new UTF8String[called.length];
            fields = new JsonToSpark[called.length];
            for (int i = 0; i < fields.length; i++) {
                names[i] = UTF8String.fromString(called[i]);
                places.put(names[i], i);
                fields[i] = of(type.apply(i).dataType());
            }
        }

        @Override
        public Object read(JsonCursor in) {
            if (in.peek() != '{') {
                throw new JsonMisfit(shown);
            }
            Object[] row = new Object[fields.length];
            boolean fits = true;
            int place = -1;
            for (boolean more = in.enter('}'); more; more = in.next('}')) {
                UTF8String name = in.name();
                // Mostly they are in the schema's order.
                place = place + 1 < names.length && names[place + 1].equals(name)
                        ? place + 1 : places.getOrDefault(name, -1);
                if (place < 0) {
                    in.copy(null);
                } else {
                    row[place] = orMisfit(fields[place], in);
                    fits &= !(row[place] instanceof JsonMisfit);
                }
            }
            for (int i = 0; !fits && i < row.length; i++) {
                if (row[i] instanceof JsonMisfit misfit) {
                    throw misfit.within(called[i]);
                }
            }
            return new GenericInternalRow(row);
        }
    }
}
