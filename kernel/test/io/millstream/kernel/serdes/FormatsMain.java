package io.millstream.kernel.serdes;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What the formats read. A line of the input is the description of a format, as Python gives it, or a record for the
 * last one, in hex. Of each record, a line says what was read, or {@code refused} and why. A record of which anything
 * else comes ends the program.
 */
public final class FormatsMain {
    private static final HexFormat HEX = HexFormat.of();

    private FormatsMain() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        Description description = Description.of(lines.readLine());
        Format format = description.made();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.startsWith("{")) {
                description = Description.of(line);
                format = description.made();
                continue;
            }
            try {
                out.append(shown(format.read(HEX.parseHex(line)), description.type()));
            } catch (UnreadableException error) {
                out.append("refused ").append(error.getMessage());
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    /** A value, so that values of two programs are equal if they are shown as the same text. */
    private static String shown(Object value, DataType type) {
        if (value == null) {
            return "null";
        }
        if (type instanceof StructType struct) {
            InternalRow row = (InternalRow) value;
            StringBuilder said = new StringBuilder("{");
            for (int i = 0; i < struct.size(); i++) {
                DataType of = struct.apply(i).dataType();
                said.append(shown(row.isNullAt(i) ? null : row.get(i, of), of)).append(' ');
            }
            return said.append('}').toString();
        }
        if (type instanceof ArrayType array) {
            return list((ArrayData) value, array.elementType());
        }
        if (type instanceof MapType map) {
            MapData data = (MapData) value;
            TreeMap<String, String> entries = new TreeMap<>();
            for (int i = 0; i < data.numElements(); i++) {
                Object one = data.valueArray().isNullAt(i) ? null : data.valueArray().get(i, map.valueType());
                entries.put(shown(data.keyArray().get(i, map.keyType()), map.keyType()), shown(one, map.valueType()));
            }
            return entries.toString();
        }
        if (value instanceof UTF8String text) {
            return "'" + HEX.formatHex(text.getBytes());
        }
        if (value instanceof byte[] data) {
            return "x" + HEX.formatHex(data);
        }
        if (value instanceof Float || type.equals(DataTypes.DoubleType)) {
            return "d" + HEX.toHexDigits(Double.doubleToLongBits(((Number) value).doubleValue()));
        }
        if (type instanceof DecimalType decimal) {
            var scaled = ((Decimal) value).toJavaBigDecimal().setScale(decimal.scale());
            return scaled.unscaledValue() + "/" + decimal.scale();
        }
        return value.toString();
    }

    private static String list(ArrayData array, DataType of) {
        StringBuilder said = new StringBuilder("[");
        for (int i = 0; i < array.numElements(); i++) {
            said.append(shown(array.isNullAt(i) ? null : array.get(i, of), of)).append(' ');
        }
        return said.append(']').toString();
    }
}
