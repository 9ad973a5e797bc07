package io.millstream.kernel.serdes;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Protobuf's wire format, from a table of fields that Python creates from a message's descriptor.
 *
 * <p>A reader does not need the writer's schema: fields have numbers, and a reader skips those that it does not know.
 * Source: protobuf.dev, "Encoding"; for the message indexes, Confluent's wire format.
 */
final class ProtobufFormat implements Format {
    private static final int VARINT = 0;
    private static final int EIGHT = 1;
    private static final int SIZED = 2;
    private static final int GROUP = 3;
    private static final int GROUP_END = 4;
    private static final int FOUR = 5;
    private static final int DEEPEST = 100;

    private final Message message;
    private final StructType type;
    private final byte[] header;
    private final byte[] indexes;
    private final byte[] longIndexes;

    ProtobufFormat(Description given) {
        type = (StructType) given.type();
        message = new Message(given.rest().path("message"), type);
        Writer numbers = new Writer();
        List<Integer> path = new ArrayList<>();
        given.rest().path("indexes").forEach(each -> path.add(each.asInt()));
        numbers.varint(zigzag(path.size()));
        path.forEach(each -> numbers.varint(zigzag(each)));
        longIndexes = numbers.bytes();
        indexes = path.equals(List.of(0)) ? new byte[1] : longIndexes; // of the first message, a 0 stands for all
        header = Header.of(given.rest().path("id").asInt());
    }

    private static long zigzag(long number) {
        return (number << 1) ^ (number >> 63);
    }

    /** A message's fields, by their places in a row. */
    private static final class Message {
        final Field[] fields;
        final Map<Integer, Integer> places = new HashMap<>();

        Message(JsonNode given, StructType type) {
            fields = new Field[type.size()];
            for (int i = 0; i < fields.length; i++) {
                fields[i] = new Field(given.get(i), type.apply(i).dataType());
                places.put(fields[i].number, i);
            }
        }
    }

    private static final class Field {
        final int number;
        final String kind;
        final boolean repeated;
        final boolean explicit;
        final boolean closed;
        /** Whether each of its texts must be UTF-8, or only the last one, which counts: so in proto2. */
        final boolean checked;
        final int oneof;
        final Object implied;
        final Message message;
        final Message entry;
        final DataType type;
        final Map<Integer, UTF8String> names = new LinkedHashMap<>();
        final Map<String, Integer> numbers = new HashMap<>();

        Field(JsonNode given, DataType type) {
            this.type = type;
            number = given.path("number").asInt();
            kind = given.path("kind").asText();
            repeated = given.path("repeated").asBoolean();
            explicit = given.path("explicit").asBoolean();
            closed = given.path("closed").asBoolean();
            checked = given.path("checked").asBoolean();
            oneof = given.path("oneof").asInt(-1);
            given.path("symbols").properties().forEach(each -> {
                names.putIfAbsent(each.getValue().asInt(), UTF8String.fromString(each.getKey()));
                numbers.put(each.getKey(), each.getValue().asInt());
            });
            DataType inner = repeated && type instanceof ArrayType array ? array.elementType() : type;
            entry = kind.equals("map") ? new Message(given.path("fields"), entryOf((MapType) type)) : null;
            message = kind.equals("message") ? new Message(given.path("fields"), (StructType) inner) : null;
            implied = explicit || repeated ? null : implied();
        }

        private static StructType entryOf(MapType type) {
            return new StructType().add("key", type.keyType()).add("value", type.valueType());
        }

        private Object implied() {
            return switch (kind) {
                case "string" -> UTF8String.EMPTY_UTF8;
                case "bytes" -> new byte[0];
                case "bool" -> Boolean.FALSE;
                case "double" -> 0.0;
                case "float" -> 0.0f;
                case "enum" -> names.values().iterator().next(); // the first one, which mostly is 0
                case "message", "map" -> null;
                default -> isInt() ? (Object) 0 : (Object) 0L;
            };
        }

        boolean isInt() {
            return kind.equals("int32") || kind.equals("sint32") || kind.equals("sfixed32");
        }

        int wire() {
            return switch (kind) {
                case "double", "fixed64", "sfixed64" -> EIGHT;
                case "float", "fixed32", "sfixed32" -> FOUR;
                case "string", "bytes", "message", "map" -> SIZED;
                default -> VARINT;
            };
        }
    }

    // --- reading -----------------------------------------------------------------------------------------------

    @Override
    public Object read(byte[] data) {
        Header.id(data);
        byte[] of = starts(data, indexes) ? indexes : longIndexes;
        if (!starts(data, of)) {
            throw new UnreadableException("a message of its own type, and this is another of the file's");
        }
        return row(message, List.of(new Reader(data, Header.SIZE + of.length, data.length)));
    }

    private static boolean starts(byte[] data, byte[] with) {
        int end = Header.SIZE + with.length;
        return end <= data.length && Arrays.equals(data, Header.SIZE, end, with, 0, with.length);
    }

    /** A message. As in Protobuf's own libraries, a field of another wire type is one that is not known. */
    private static InternalRow row(Message message, List<Reader> parts) {
        Object[] values = new Object[message.fields.length];
        for (Reader part : parts) {
            read(message, part, values);
        }
        for (int i = 0; i < values.length; i++) {
            values[i] = whole(message.fields[i], values[i]);
        }
        return new GenericInternalRow(values);
    }

    /** Reads a part of a message, and whether all in it is known. */
    private static boolean read(Message message, Reader in, Object[] values) {
        boolean known = true;
        while (in.at < in.end) {
            long tag = in.tag();
            int wire = (int) (tag & 7);
            int place = message.places.getOrDefault((int) (tag >>> 3), -1);
            Field field = place < 0 ? null : message.fields[place];
            boolean packed = field != null && field.repeated && wire == SIZED && field.wire() != SIZED;
            if (field == null || wire != field.wire() && !packed) {
                in.skip(wire, tag >>> 3, 0);
                known = false;
            } else if (packed) {
                Reader part = in.part();
                while (part.at < part.end) {
                    add(values, place, value(field, part));
                }
            } else if (field.entry != null) {
                Object[] entry = new Object[2];
                if (read(field.entry, in.part(), entry)) { // Protobuf's library for Python drops the others
                    Field[] of = field.entry.fields;
                    entries(values, place).put(whole(of[0], entry[0]), whole(of[1], entry[1]));
                }
            } else if (field.repeated) {
                add(values, place, field.message == null ? value(field, in) : row(field.message, List.of(in.part())));
            } else {
                Object one = field.message == null ? value(field, in) : in.part();
                if (one != null) {
                    set(message, values, place, one);
                } else {
                    known = false;
                }
            }
        }
        return known;
    }

    /** Of a oneof the last field counts. The parts of a message that comes more than once are merged. */
    private static void set(Message message, Object[] values, int place, Object value) {
        Field field = message.fields[place];
        for (int i = 0; field.oneof >= 0 && i < values.length; i++) {
            if (i != place && message.fields[i].oneof == field.oneof) {
                whole(message.fields[i], values[i]); // what does not count must be whole, too
                values[i] = null;
            }
        }
        if (!(value instanceof Reader part)) {
            values[place] = value;
        } else if (values[place] == null) {
            values[place] = new ArrayList<>(List.of(part));
        } else {
            parts(values[place]).add(part);
        }
    }

    /** What was read of a field as a value of its type. */
    private static Object whole(Field field, Object read) {
        if (field.entry != null) {
            Map<?, ?> map = read == null ? Map.of() : (Map<?, ?>) read;
            return new ArrayBasedMapData(
                    new GenericArrayData(map.keySet().toArray()), new GenericArrayData(map.values().toArray()));
        }
        if (field.repeated) {
            return new GenericArrayData(read == null ? new Object[0] : ((List<?>) read).toArray());
        }
        if (read == null) {
            return field.message != null && !field.explicit ? row(field.message, List.of()) : field.implied;
        }
        if (field.message == null) {
            return read instanceof UTF8String text && !field.checked ? checked(text) : read;
        }
        return row(field.message, parts(read));
    }

    @SuppressWarnings("unchecked")
    private static List<Reader> parts(Object read) {
        return (List<Reader>) read;
    }

    @SuppressWarnings("unchecked")
    private static Map<Object, Object> entries(Object[] values, int place) {
        if (values[place] == null) {
            values[place] = new LinkedHashMap<>();
        }
        return (Map<Object, Object>) values[place];
    }

    @SuppressWarnings("unchecked")
    private static void add(Object[] values, int place, Object value) {
        if (values[place] == null) {
            values[place] = new ArrayList<>();
        }
        if (value != null) { // else of an enum's number that is not known
            ((List<Object>) values[place]).add(value);
        }
    }

    /** A value that is no message; null for a number that a closed enum does not have. */
    private static Object value(Field field, Reader in) {
        return switch (field.kind) {
            case "double" -> Double.longBitsToDouble(in.fixed(8));
            case "float" -> Float.intBitsToFloat((int) in.fixed(4));
            case "fixed64", "sfixed64" -> in.fixed(8);
            case "sfixed32" -> (int) in.fixed(4);
            case "fixed32" -> in.fixed(4) & 0xffffffffL;
            case "bool" -> in.varint() != 0;
            case "int32" -> (int) in.varint();
            case "uint32" -> in.varint() & 0xffffffffL;
            case "sint32" -> (int) signed(in.varint() & 0xffffffffL);
            case "sint64" -> signed(in.varint());
            case "enum" -> symbol(field, (int) in.varint());
            case "string" -> text(in.bytes(), field.checked || field.repeated);
            case "bytes" -> in.bytes();
            default -> in.varint();
        };
    }

    private static long signed(long number) {
        return (number >>> 1) ^ -(number & 1);
    }

    private static UTF8String text(byte[] data, boolean checked) {
        UTF8String text = UTF8String.fromBytes(data);
        return checked ? checked(text) : text;
    }

    private static UTF8String checked(UTF8String text) {
        if (!text.isValid()) {
            throw new UnreadableException("Protobuf whose texts are UTF-8");
        }
        return text;
    }

    private static UTF8String symbol(Field field, int number) {
        UTF8String name = field.names.get(number);
        return name == null && !field.closed ? UTF8String.fromString(Integer.toString(number)) : name;
    }

    private static final class Reader {
        private final byte[] data;
        private final int end;
        private int at;

        Reader(byte[] data, int from, int end) {
            this.data = data;
            this.at = from;
            this.end = end;
        }

        long varint() {
            return varint(64);
        }

        /** A tag or a length, in at most five bytes. */
        private long small() {
            long number = varint(35);
            if (number >>> 32 != 0) {
                throw cut();
            }
            return number;
        }

        long tag() {
            long tag = small();
            if (tag >>> 3 == 0) {
                throw cut();
            }
            return tag;
        }

        private long varint(int most) {
            long number = 0;
            for (int shift = 0; shift < most; shift += 7) {
                if (at >= end) {
                    throw cut();
                }
                byte next = data[at++];
                number |= (long) (next & 0x7f) << shift;
                if (next >= 0) {
                    return number;
                }
            }
            throw cut();
        }

        long fixed(int size) {
            if (size > end - at) {
                throw cut();
            }
            long number = 0;
            for (int i = 0; i < size; i++) {
                number |= (data[at++] & 0xffL) << (8 * i);
            }
            return number;
        }

        byte[] bytes() {
            Reader part = part();
            return Arrays.copyOfRange(data, part.at, part.end);
        }

        Reader part() {
            long length = small();
            if (length > end - at) {
                throw cut();
            }
            at += (int) length;
            return new Reader(data, at - (int) length, at);
        }

        void skip(int wire, long number, int depth) {
            switch (wire) {
                case VARINT -> varint();
                case EIGHT -> fixed(8);
                case FOUR -> fixed(4);
                case SIZED -> part();
                case GROUP -> {
                    if (depth >= DEEPEST) {
                        throw cut();
                    }
                    for (long tag = tag(); tag != (number << 3 | GROUP_END); tag = tag()) {
                        skip((int) (tag & 7), tag >>> 3, depth + 1);
                    }
                }
                default -> throw cut();
            }
        }

        private static UnreadableException cut() {
            return new UnreadableException("Protobuf that is whole");
        }
    }

    // --- writing -----------------------------------------------------------------------------------------------

    @Override
    public byte[] write(Object value) {
        Writer out = new Writer();
        out.raw(header);
        out.raw(indexes);
        write(message, (InternalRow) value, type, out);
        return out.bytes();
    }

    private static void write(Message message, InternalRow row, StructType type, Writer out) {
        for (int i = 0; i < message.fields.length; i++) {
            Field field = message.fields[i];
            if (row.isNullAt(i)) {
                continue;
            }
            Object value = row.get(i, type.apply(i).dataType());
            if (field.entry != null) {
                entries(field, (MapData) value, out);
            } else if (field.repeated) {
                list(field, (ArrayData) value, out);
            } else if (field.explicit || field.kind.equals("message") || !isImplied(field, value)) {
                out.varint((long) field.number << 3 | field.wire());
                one(field, value, field.type, out);
            }
        }
    }

    private static boolean isImplied(Field field, Object value) {
        if (value instanceof byte[] bytes) {
            return bytes.length == 0;
        }
        // Protobuf writes the bits of -0.0.
        return value.equals(field.implied);
    }

    private static void entries(Field field, MapData map, Writer out) {
        MapType type = (MapType) field.type;
        StructType entry = Field.entryOf(type);
        for (int i = 0; i < map.numElements(); i++) {
            Object[] pair = {map.keyArray().get(i, type.keyType()),
                map.valueArray().isNullAt(i) ? null : map.valueArray().get(i, type.valueType())};
            Writer inner = new Writer();
            InternalRow row = new GenericInternalRow(pair);
            for (int j = 0; j < 2; j++) {
                Field part = field.entry.fields[j];
                if (!row.isNullAt(j)) {
                    inner.varint((long) part.number << 3 | part.wire());
                    one(part, pair[j], entry.apply(j).dataType(), inner);
                }
            }
            out.varint((long) field.number << 3 | SIZED);
            out.sized(inner.bytes());
        }
    }

    private static void list(Field field, ArrayData array, Writer out) {
        DataType type = ((ArrayType) field.type).elementType();
        boolean packed = field.wire() != SIZED;
        Writer inner = packed ? new Writer() : out;
        for (int i = 0; i < array.numElements(); i++) {
            if (array.isNullAt(i)) {
                throw new UnwritableException("a repeated field has a null, which Protobuf does not allow");
            }
            if (!packed) {
                out.varint((long) field.number << 3 | SIZED);
            }
            one(field, array.get(i, type), type, inner);
        }
        if (packed && array.numElements() > 0) {
            out.varint((long) field.number << 3 | SIZED);
            out.sized(inner.bytes());
        }
    }

    private static void one(Field field, Object value, DataType type, Writer out) {
        switch (field.kind) {
            case "double" -> out.fixed(Double.doubleToRawLongBits(((Number) value).doubleValue()), 8);
            case "float" -> out.fixed(Float.floatToRawIntBits(((Number) value).floatValue()), 4);
            case "fixed64", "sfixed64" -> out.fixed(((Number) value).longValue(), 8);
            case "fixed32", "sfixed32" -> out.fixed(((Number) value).longValue(), 4);
            case "bool" -> out.varint((Boolean) value ? 1 : 0);
            case "sint32", "sint64" -> out.varint(zigzag(((Number) value).longValue()));
            case "enum" -> out.varint(number(field, value.toString()));
            case "string" -> out.sized(value.toString().getBytes(StandardCharsets.UTF_8));
            case "bytes" -> out.sized((byte[]) value);
            case "message" -> {
                Writer inner = new Writer();
                write(field.message, (InternalRow) value, (StructType) type, inner);
                out.sized(inner.bytes());
            }
            default -> out.varint(((Number) value).longValue());
        }
    }

    private static int number(Field field, String name) {
        Integer number = field.numbers.get(name);
        if (number == null && name.matches("-?\\d{1,9}")) {
            return Integer.parseInt(name); // a number that the schema does not know, as it was read
        }
        if (number == null) {
            throw new UnwritableException("a text is not a name of an enum");
        }
        return number;
    }

    private static final class Writer {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream(64);

        void varint(long number) {
            long rest = number;
            while ((rest & ~0x7fL) != 0) {
                out.write((int) (rest & 0x7f | 0x80));
                rest >>>= 7;
            }
            out.write((int) rest);
        }

        void fixed(long number, int size) {
            for (int i = 0; i < size; i++) {
                out.write((int) (number >>> (8 * i)));
            }
        }

        void sized(byte[] bytes) {
            varint(bytes.length);
            raw(bytes);
        }

        void raw(byte[] bytes) {
            out.writeBytes(bytes);
        }

        byte[] bytes() {
            return out.toByteArray();
        }
    }
}
