package io.millstream.kernel.serdes;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * Numbers as Kafka's serializers write them: big-endian two's complement, and IEEE 754.
 *
 * <p>Spark compiles a call of a public static {@code invoke} into its plans, chosen by the types of the arguments. Of
 * bytes of another length, as of null, a reader makes null.
 */
final class FixedWidth {
    static final Map<String, BoundFunction> FUNCTIONS = Stream.of(
                    new ReadShort(),
                    new ReadInteger(),
                    new ReadLong(),
                    new ReadFloat(),
                    new ReadDouble(),
                    new Write(DataTypes.ShortType),
                    new Write(DataTypes.IntegerType),
                    new Write(DataTypes.LongType),
                    new Write(DataTypes.FloatType),
                    new Write(DataTypes.DoubleType))
            .collect(Collectors.toMap(BoundFunction::name, Function.identity()));

    private FixedWidth() {}

    /** A number's bytes. */
    public static final class Write implements ScalarFunction<byte[]> {
        private static final long serialVersionUID = 1;

        private final DataType type;

        Write(DataType type) {
            this.type = type;
        }

        public static byte[] invoke(short value) {
            return ByteBuffer.allocate(Short.BYTES).putShort(value).array();
        }

        public static byte[] invoke(int value) {
            return ByteBuffer.allocate(Integer.BYTES).putInt(value).array();
        }

        public static byte[] invoke(long value) {
            return ByteBuffer.allocate(Long.BYTES).putLong(value).array();
        }

        public static byte[] invoke(float value) {
            return ByteBuffer.allocate(Float.BYTES).putFloat(value).array();
        }

        public static byte[] invoke(double value) {
            return ByteBuffer.allocate(Double.BYTES).putDouble(value).array();
        }

        @Override
        public String name() {
            return "write_" + type.typeName();
        }

        @Override
        public DataType[] inputTypes() {
            return new DataType[] {type};
        }

        @Override
        public DataType resultType() {
            return DataTypes.BinaryType;
        }
    }

    /** A number from its bytes. Java finds a method by its arguments alone, so each type has a class. */
    private abstract static class Read<T> implements ScalarFunction<T> {
        private static final long serialVersionUID = 1;

        private final DataType type;

        Read(DataType type) {
            this.type = type;
        }

        @Override
        public String name() {
            return "read_" + type.typeName();
        }

        @Override
        public DataType[] inputTypes() {
            return new DataType[] {DataTypes.BinaryType};
        }

        @Override
        public DataType resultType() {
            return type;
        }
    }

    /** Two bytes. */
    public static final class ReadShort extends Read<Short> {
        private static final long serialVersionUID = 1;

        ReadShort() {
            super(DataTypes.ShortType);
        }

        public static Short invoke(byte[] data) {
            return data == null || data.length != Short.BYTES ? null : ByteBuffer.wrap(data).getShort();
        }
    }

    /** Four bytes. */
    public static final class ReadInteger extends Read<Integer> {
        private static final long serialVersionUID = 1;

        ReadInteger() {
            super(DataTypes.IntegerType);
        }

        public static Integer invoke(byte[] data) {
            return data == null || data.length != Integer.BYTES ? null : ByteBuffer.wrap(data).getInt();
        }
    }

    /** Eight bytes. */
    public static final class ReadLong extends Read<Long> {
        private static final long serialVersionUID = 1;

        ReadLong() {
            super(DataTypes.LongType);
        }

        public static Long invoke(byte[] data) {
            return data == null || data.length != Long.BYTES ? null : ByteBuffer.wrap(data).getLong();
        }
    }

    /** Four bytes. */
    public static final class ReadFloat extends Read<Float> {
        private static final long serialVersionUID = 1;

        ReadFloat() {
            super(DataTypes.FloatType);
        }

        public static Float invoke(byte[] data) {
            return data == null || data.length != Float.BYTES ? null : ByteBuffer.wrap(data).getFloat();
        }
    }

    /** Eight bytes. */
    public static final class ReadDouble extends Read<Double> {
        private static final long serialVersionUID = 1;

        ReadDouble() {
            super(DataTypes.DoubleType);
        }

        public static Double invoke(byte[] data) {
            return data == null || data.length != Double.BYTES ? null : ByteBuffer.wrap(data).getDouble();
        }
    }
}
