package io.millstream.kernel.serdes;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/** Converts Spark's values to Avro's. Python has checked that the types fit. */
interface AvroFromSpark {
    Object of(Object value);

    default Object apply(Object value) {
        return value == null ? null : of(value);
    }

    /**
     * The conversion of a type's values to those of a schema.
     *
     * @param place the field, for messages
     */
    static AvroFromSpark of(String place, Schema given, DataType type) {
        if (given.getType() == Schema.Type.UNION) {
            List<Schema> members = members(given);
            boolean takesNull = members.size() < given.getTypes().size();
            if (type instanceof StructType struct && isOfMembers(members, struct)) {
                return ofUnion(place, members, struct);
            }
            // Of int and long, or float and double, the wider one has room for all values.
            AvroFromSpark inner = members.isEmpty() ? value -> null : of(place, widest(members), type);
            return takesNull && inner instanceof NotNull strict ? strict.inner() : inner;
        }
        AvroFromSpark inner = switch (given.getType()) {
            case RECORD -> ofRecord(place, given, (StructType) type);
            case ARRAY -> ofArray(
                    of(place, given.getElementType(), ((ArrayType) type).elementType()), (ArrayType) type);
            case MAP -> ofMap(of(place, given.getValueType(), ((MapType) type).valueType()), (MapType) type);
            case STRING -> Object::toString;
            case ENUM -> value -> ofEnum(place, given, value.toString());
            case BYTES -> given.getLogicalType() instanceof LogicalTypes.Decimal decimal
                    ? value -> new Conversions.DecimalConversion().toBytes(number(value, decimal), given, decimal)
                    : value -> ByteBuffer.wrap((byte[]) value);
            case FIXED -> given.getLogicalType() instanceof LogicalTypes.Decimal decimal
                    ? value -> new Conversions.DecimalConversion().toFixed(number(value, decimal), given, decimal)
                    : value -> ofFixed(place, given, (byte[]) value);
            case INT -> value -> ((Number) value).intValue();
            case LONG -> isInMillis(given) ? value -> Math.floorDiv((Long) value, 1000L)
                    : value -> ((Number) value).longValue();
            case FLOAT -> value -> ((Number) value).floatValue();
            case DOUBLE -> value -> ((Number) value).doubleValue();
            default -> value -> value;
        };
        return given.getType() == Schema.Type.NULL ? inner : new NotNull(place, inner);
    }

    private static Schema widest(List<Schema> members) {
        for (Schema member : members) {
            if (member.getType() == Schema.Type.LONG || member.getType() == Schema.Type.DOUBLE) {
                return member;
            }
        }
        return members.get(members.size() - 1);
    }

    /** A conversion that allows no null. */
    record NotNull(String place, AvroFromSpark inner) implements AvroFromSpark {
        @Override
        public Object of(Object value) {
            return inner.of(value);
        }

        @Override
        public Object apply(Object value) {
            if (value == null) {
                throw new UnwritableException(
                        "the field '" + place + "' is null, but its type does not allow null");
            }
            return inner.of(value);
        }
    }

    /** Whether a type is the struct for a union of several types, in which one field has a value. */
    static boolean isOfMembers(List<Schema> members, StructType type) {
        return members.size() > 1 && type.size() == members.size() && type.apply(0).name().equals("member0");
    }

    /** The members of a union, without null. */
    static List<Schema> members(Schema union) {
        return union.getTypes().stream().filter(each -> each.getType() != Schema.Type.NULL).toList();
    }

    static boolean isInMillis(Schema schema) {
        return schema.getLogicalType() instanceof LogicalTypes.TimestampMillis
                || schema.getLogicalType() instanceof LogicalTypes.LocalTimestampMillis;
    }

    private static AvroFromSpark ofRecord(String place, Schema schema, StructType type) {
        List<Schema.Field> fields = schema.getFields();
        int[] where = new int[fields.size()];
        AvroFromSpark[] each = new AvroFromSpark[where.length];
        for (int i = 0; i < where.length; i++) {
            String name = fields.get(i).name();
            int at = List.of(type.fieldNames()).indexOf(name);
            where[i] = at;
            String inner = place.isEmpty() ? name : place + "." + name;
            each[i] = at < 0 ? null : of(inner, fields.get(i).schema(), type.apply(at).dataType());
        }
        return value -> {
            InternalRow row = (InternalRow) value;
            GenericData.Record record = new GenericData.Record(schema);
            for (int i = 0; i < where.length; i++) {
                if (each[i] == null) {
                    record.put(i, GenericData.get().getDefaultValue(fields.get(i)));
                } else {
                    boolean isNull = row.isNullAt(where[i]);
                    record.put(i, each[i].apply(
                            isNull ? null : row.get(where[i], type.apply(where[i]).dataType())));
                }
            }
            return record;
        };
    }

    private static AvroFromSpark ofUnion(String place, List<Schema> members, StructType type) {
        List<AvroFromSpark> each = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            each.add(of(place, members.get(i), type.apply(i).dataType()));
        }
        return value -> {
            InternalRow row = (InternalRow) value;
            for (int i = 0; i < each.size(); i++) {
                if (!row.isNullAt(i)) {
                    return each.get(i).of(row.get(i, type.apply(i).dataType()));
                }
            }
            return null;
        };
    }

    private static AvroFromSpark ofArray(AvroFromSpark item, ArrayType type) {
        return value -> list((ArrayData) value, item, type.elementType());
    }

    private static List<Object> list(ArrayData array, AvroFromSpark item, DataType type) {
        List<Object> list = new ArrayList<>(array.numElements());
        for (int i = 0; i < array.numElements(); i++) {
            list.add(item.apply(array.isNullAt(i) ? null : array.get(i, type)));
        }
        return list;
    }

    private static AvroFromSpark ofMap(AvroFromSpark item, MapType type) {
        return value -> {
            MapData data = (MapData) value;
            List<Object> keys = list(data.keyArray(), Object::toString, type.keyType());
            List<Object> values = list(data.valueArray(), item, type.valueType());
            Map<Object, Object> map = new LinkedHashMap<>();
            for (int i = 0; i < keys.size(); i++) {
                map.put(keys.get(i), values.get(i));
            }
            return map;
        };
    }

    private static Object ofEnum(String place, Schema schema, String symbol) {
        if (!schema.hasEnumSymbol(symbol)) {
            throw new UnwritableException(
                    "the field '" + place + "' is not a symbol of the enum " + schema.getFullName());
        }
        return new GenericData.EnumSymbol(schema, symbol);
    }

    private static Object ofFixed(String place, Schema schema, byte[] bytes) {
        if (bytes.length != schema.getFixedSize()) {
            throw new UnwritableException("the field '" + place + "' has " + bytes.length + " bytes, but "
                    + schema.getFullName() + " has " + schema.getFixedSize());
        }
        return new GenericData.Fixed(schema, bytes);
    }

    private static BigDecimal number(Object value, LogicalTypes.Decimal type) {
        return ((Decimal) value).toJavaBigDecimal().setScale(type.getScale());
    }
}
