package io.millstream.kernel.task;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values of one type: between the columns of Spark's rows, the cores, where structs and arrays are lists, and the bytes
 * in which the state keeps them.
 */
@SuppressWarnings("super")
abstract class Packing {
    private static final int NULL = 0;
    private static final int VALUE = 1;

    /** The value of a column, for a core, which may keep it. */
    final Object read(SpecializedGetters row, int column) {
        return row.isNullAt(column) ? null : got(row, column);
    }

    protected abstract Object got(SpecializedGetters row, int column);

    /** A core's value as Spark has it in rows. */
    Object column(Object value) {
        return value;
    }

    final void write(Object value, DataOutputStream to) throws IOException {
        to.writeByte(value == null ? NULL : VALUE);
        if (value != null) {
            put(value, to);
        }
    }

    protected abstract void put(Object value, DataOutputStream to) throws IOException;

    final Object read(DataInputStream from) throws IOException {
        return from.readByte() == NULL ? null : take(from);
    }

    protected abstract Object take(DataInputStream from) throws IOException;

    static Packing of(DataType type) {
        if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return new OfPlain<>(SpecializedGetters::getLong, DataOutputStream::writeLong, DataInputStream::readLong);
        }
        if (type instanceof IntegerType || type instanceof DateType) {
            return new OfPlain<>(SpecializedGetters::getInt, DataOutputStream::writeInt, DataInputStream::readInt);
        }
        if (type instanceof DoubleType) {
            return new OfPlain<>(
                    SpecializedGetters::getDouble, DataOutputStream::writeDouble, DataInputStream::readDouble);
        }
        if (type instanceof BinaryType) {
            return new OfBytes();
        }
        if (type instanceof StringType) {
            return new OfText();
        }
        if (type instanceof BooleanType) {
            return new OfPlain<>(
                    SpecializedGetters::getBoolean, DataOutputStream::writeBoolean, DataInputStream::readBoolean);
        }
        if (type instanceof DecimalType decimal) {
            return new OfDecimal(decimal);
        }
        if (type instanceof ArrayType array) {
            return new OfArray(of(array.elementType()));
        }
        if (type instanceof StructType struct) {
            return new OfStruct(struct);
        }
        if (type instanceof FloatType) {
            return new OfPlain<>(
                    SpecializedGetters::getFloat, DataOutputStream::writeFloat, DataInputStream::readFloat);
        }
        if (type instanceof ShortType) {
            return new OfPlain<Number>(
                    SpecializedGetters::getShort, Packing::small, DataInputStream::readShort);
        }
        if (type instanceof ByteType) {
            return new OfPlain<Number>(SpecializedGetters::getByte, Packing::small, from -> (byte) from.readShort());
        }
        throw new IllegalArgumentException("the state cannot keep values of type " + type.catalogString());
    }

    /** A type of a fixed size, whose values are the same everywhere: how a column has it, and how bytes do. */
    private static final class OfPlain<T> extends Packing {
        private final Column<T> column;
        private final To<T> to;
        private final From<T> from;

        interface Column<T> {
            T got(SpecializedGetters row, int column);
        }

        interface To<T> {
            void put(DataOutputStream to, T value) throws IOException;
        }

        interface From<T> {
            T take(DataInputStream from) throws IOException;
        }

        OfPlain(Column<T> column, To<T> to, From<T> from) {
            this.column = column;
            this.to = to;
            this.from = from;
        }

        @Override
        protected Object got(SpecializedGetters row, int place) {
            return column.got(row, place);
        }

        @Override
        @SuppressWarnings("unchecked") // it is one that `got` or `take` has returned, or of the same type
        protected void put(Object value, DataOutputStream out) throws IOException {
            to.put(out, (T) value);
        }

        @Override
        protected Object take(DataInputStream in) throws IOException {
            return from.take(in);
        }
    }

    private static void small(DataOutputStream to, Number value) throws IOException {
        to.writeShort(value.intValue());
    }

    private static final class OfBytes extends Packing {
        @Override
        protected Object got(SpecializedGetters row, int column) {
            return row.getBinary(column);
        }

        @Override
        protected void put(Object value, DataOutputStream to) throws IOException {
            byte[] bytes = (byte[]) value;
            to.writeInt(bytes.length);
            to.write(bytes);
        }

        @Override
        protected Object take(DataInputStream from) throws IOException {
            return from.readNBytes(from.readInt());
        }
    }

    private static final class OfText extends Packing {
        @Override
        protected Object got(SpecializedGetters row, int column) {
            return row.getUTF8String(column).toString();
        }

        @Override
        Object column(Object value) {
            return UTF8String.fromString((String) value);
        }

        @Override
        protected void put(Object value, DataOutputStream to) throws IOException {
            byte[] bytes = ((String) value).getBytes(java.nio.charset.StandardCharsets.UTF_8);
            to.writeInt(bytes.length);
            to.write(bytes);
        }

        @Override
        protected Object take(DataInputStream from) throws IOException {
            return new String(from.readNBytes(from.readInt()), java.nio.charset.StandardCharsets.UTF_8);
        }
    }

    private static final class OfDecimal extends Packing {
        private final DecimalType type;

        OfDecimal(DecimalType type) {
            this.type = type;
        }

        @Override
        protected Object got(SpecializedGetters row, int column) {
            return row.getDecimal(column, type.precision(), type.scale()).toJavaBigDecimal();
        }

        @Override
        Object column(Object value) {
            return Decimal.apply((java.math.BigDecimal) value, type.precision(), type.scale());
        }

        @Override
        protected void put(Object value, DataOutputStream to) throws IOException {
            java.math.BigDecimal number = (java.math.BigDecimal) value;
            byte[] digits = number.unscaledValue().toByteArray();
            to.writeInt(number.scale());
            to.writeInt(digits.length);
            to.write(digits);
        }

        @Override
        protected Object take(DataInputStream from) throws IOException {
            int scale = from.readInt();
            return new java.math.BigDecimal(new java.math.BigInteger(from.readNBytes(from.readInt())), scale);
        }
    }

    private static final class OfArray extends Packing {
        private final Packing element;

        OfArray(Packing element) {
            this.element = element;
        }

        @Override
        protected Object got(SpecializedGetters row, int column) {
            ArrayData array = row.getArray(column);
            List<Object> all = new ArrayList<>(array.numElements());
            for (int i = 0; i < array.numElements(); i++) {
                all.add(element.read(array, i));
            }
            return all;
        }

        @Override
        Object column(Object value) {
            List<?> all = (List<?>) value;
            Object[] columns = new Object[all.size()];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = all.get(i) == null ? null : element.column(all.get(i));
            }
            return new GenericArrayData(columns);
        }

        @Override
        protected void put(Object value, DataOutputStream to) throws IOException {
            List<?> all = (List<?>) value;
            to.writeInt(all.size());
            for (Object each : all) {
                element.write(each, to);
            }
        }

        @Override
        protected Object take(DataInputStream from) throws IOException {
            int size = from.readInt();
            List<Object> all = new ArrayList<>(size);
            for (int i = 0; i < size; i++) {
                all.add(element.read(from));
            }
            return all;
        }
    }

    private static final class OfStruct extends Packing {
        private final Packing[] fields;

        OfStruct(StructType type) {
            fields = new Packing[type.size()];
            for (int i = 0; i < fields.length; i++) {
                fields[i] = of(type.apply(i).dataType());
            }
        }

        @Override
        protected Object got(SpecializedGetters row, int column) {
            InternalRow struct = row.getStruct(column, fields.length);
            List<Object> all = new ArrayList<>(fields.length);
            for (int i = 0; i < fields.length; i++) {
                all.add(fields[i].read(struct, i));
            }
            return all;
        }

        @Override
        Object column(Object value) {
            List<?> all = (List<?>) value;
            Object[] columns = new Object[fields.length];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = all.get(i) == null ? null : fields[i].column(all.get(i));
            }
            return new GenericInternalRow(columns);
        }

        @Override
        protected void put(Object value, DataOutputStream to) throws IOException {
            List<?> all = (List<?>) value;
            for (int i = 0; i < fields.length; i++) {
                fields[i].write(all.get(i), to);
            }
        }

        @Override
        protected Object take(DataInputStream from) throws IOException {
            List<Object> all = new ArrayList<>(fields.length);
            for (Packing field : fields) {
                all.add(field.read(from));
            }
            return all;
        }
    }

    /** Writes to bytes. */
    interface Writing {
        void to(DataOutputStream out) throws IOException;
    }

    static byte[] bytes(Writing writing) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(64);
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            writing.to(out);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    static DataInputStream from(byte[] bytes) {
        return new DataInputStream(new ByteArrayInputStream(bytes));
    }
}
