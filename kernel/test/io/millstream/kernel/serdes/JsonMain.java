package io.millstream.kernel.serdes;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads JSON and writes it again. Each line has the number of a type, which is an argument, and a document in hex; the
 * answer is what is written, in hex, and the value; or, behind a {@code !}, why it cannot be read. A line with
 * {@code double} or {@code float} and the bits of one is answered with its text.
 */
public final class JsonMain {
    private static final HexFormat HEX = HexFormat.of();

    private JsonMain() {}

    public static void main(String[] arguments) throws IOException {
        Format[] reads = new Format[arguments.length];
        Format[] writes = new Format[arguments.length];
        DataType[] types = new DataType[arguments.length];
        for (int i = 0; i < arguments.length; i++) {
            types[i] = DataType.fromJson(arguments[i]);
            reads[i] = description("read", arguments[i]).made();
            writes[i] = description("write", arguments[i]).made();
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 2);
            if (parts[0].equals("double")) {
                double number = Double.longBitsToDouble(Long.parseUnsignedLong(parts[1], 16));
                out.println(JsonNumbers.text(number));
            } else if (parts[0].equals("float")) {
                out.println(JsonNumbers.text(Float.intBitsToFloat(Integer.parseUnsignedInt(parts[1], 16))));
            } else {
                int which = Integer.parseInt(parts[0]);
                out.println(answer(reads[which], writes[which], types[which], HEX.parseHex(parts[1])));
            }
        }
    }

    private static Description description(String does, String type) throws IOException {
        ObjectMapper json = new ObjectMapper();
        Map<String, Object> given = Map.of(
                "format", "json", "called", "json", "does", does, "type", json.readTree(type));
        return Description.of(json.writeValueAsString(given));
    }

    private static String answer(Format read, Format write, DataType type, byte[] data) {
        try {
            Object value = read.read(data);
            return HEX.formatHex(write.write(value)) + " " + shown(value, type);
        } catch (UnreadableException error) {
            return "! " + error.getMessage();
        }
    }

    private static String shown(Object value, DataType type) {
        StringBuilder out = new StringBuilder();
        if (value == null) {
            return "null";
        } else if (type instanceof StructType struct) {
            InternalRow row = (InternalRow) value;
            for (int i = 0; i < struct.size(); i++) {
                DataType each = struct.apply(i).dataType();
                out.append(shown(UTF8String.fromString(struct.apply(i).name()), null)).append(':');
                out.append(shown(row.isNullAt(i) ? null : row.get(i, each), each)).append(',');
            }
            return "{" + out + "}";
        } else if (type instanceof ArrayType array) {
            ArrayData elements = (ArrayData) value;
            for (int i = 0; i < elements.numElements(); i++) {
                out.append(shown(elements.isNullAt(i) ? null : elements.get(i, array.elementType()),
                        array.elementType())).append(',');
            }
            return "[" + out + "]";
        } else if (type instanceof MapType map) {
            ArrayData keys = ((MapData) value).keyArray();
            ArrayData values = ((MapData) value).valueArray();
            for (int i = 0; i < keys.numElements(); i++) {
                out.append(shown(keys.getUTF8String(i), null)).append(':');
                out.append(shown(values.isNullAt(i) ? null : values.get(i, map.valueType()), map.valueType()));
                out.append(',');
            }
            return "{" + out + "}";
        } else if (value instanceof UTF8String text) {
            return "s" + HEX.formatHex(text.getBytes());
        } else if (value instanceof byte[] bytes) {
            return "b" + HEX.formatHex(bytes);
        } else if (value instanceof Decimal decimal) {
            BigDecimal number = decimal.toJavaBigDecimal();
            return number.toPlainString();
        } else if (value instanceof Float || value instanceof Double) {
            return "d" + HEX.toHexDigits(Double.doubleToLongBits(((Number) value).doubleValue()));
        }
        return value.toString();
    }
}
