// Writes serdes.json: bytes that Kafka's own serializers make of some values, as hexadecimal text.
//
//     mvn -q -f tests/snapshots/describe/pom.xml dependency:copy-dependencies
//     java -cp 'tests/snapshots/describe/target/dependency/*' tests/snapshots/SerializeAll.java tests/snapshots/serdes.json

import java.io.File;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

public class SerializeAll {
    static final Map<String, List<List<String>>> ALL = new TreeMap<>();

    @SafeVarargs
    static <T> void put(final String name, final Serde<T> serde, final T... values) {
        final List<List<String>> rows = new ArrayList<>();
        for (final T value : values) {
            final byte[] bytes = serde.serializer().serialize("topic", value);
            rows.add(List.of(String.valueOf(value), HexFormat.of().formatHex(bytes)));
        }
        ALL.put(name, rows);
    }

    public static void main(final String[] args) throws Exception {
        put("string", Serdes.String(), "", "a", "word count", "Müller", "日本語", "\uD83D\uDE00", "a\u0000b");
        put("short", Serdes.Short(), (short) 0, (short) 1, (short) -1, (short) 258, Short.MIN_VALUE, Short.MAX_VALUE);
        put("integer", Serdes.Integer(), 0, 1, -1, 66051, Integer.MIN_VALUE, Integer.MAX_VALUE);
        put("long", Serdes.Long(), 0L, 1L, -1L, 72623859790382856L, Long.MIN_VALUE, Long.MAX_VALUE);
        put("float", Serdes.Float(), 0f, -0f, 1f, -1.5f, 0.1f, Float.MIN_VALUE, Float.MAX_VALUE,
            Float.POSITIVE_INFINITY, Float.NaN);
        put("double", Serdes.Double(), 0d, -0d, 1d, -1.5d, 0.1d, Double.MIN_VALUE, Double.MAX_VALUE,
            Double.NEGATIVE_INFINITY, Double.NaN);
        put("boolean", Serdes.Boolean(), true, false);
        put("uuid", Serdes.UUID(), new UUID(0, 0), new UUID(-1, -1),
            UUID.fromString("123e4567-e89b-12d3-a456-426614174000"));
        new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValue(new File(args[0]), ALL);
    }
}
