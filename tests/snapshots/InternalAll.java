// Writes internal.json: what Kafka Streams writes into topics between its tasks, as hexadecimal text.
//
//     mvn -q -f tests/snapshots/describe/pom.xml dependency:copy-dependencies
//     java -cp 'tests/snapshots/describe/target/dependency/*' tests/snapshots/InternalAll.java tests/snapshots/internal.json

import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.kstream.internals.Change;
import org.apache.kafka.streams.kstream.internals.ChangedSerializer;
import org.apache.kafka.streams.state.internals.Murmur3;

public class InternalAll {
    static final HexFormat HEX = HexFormat.of();

    static String change(final byte[] now, final byte[] old) {
        final byte[] made = new ChangedSerializer<>(new ByteArraySerializer())
            .serialize("topic", new RecordHeaders(), new Change<>(now, old));
        return HEX.formatHex(made);
    }

    static String hash(final byte[] value) {
        final long[] hash = Murmur3.hash128(value);
        return HEX.formatHex(ByteBuffer.allocate(16).putLong(hash[0]).putLong(hash[1]).array());
    }

    public static void main(final String[] args) throws Exception {
        final List<Map<String, String>> hashes = new ArrayList<>();
        final byte[] all = new byte[40];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) (i * 37 - 128);
        }
        for (int length = 0; length <= all.length; length++) {
            final byte[] value = java.util.Arrays.copyOf(all, length);
            hashes.add(Map.of("value", HEX.formatHex(value), "hash", hash(value)));
        }
        final List<Map<String, String>> changes = new ArrayList<>();
        final byte[][] values = {{}, {1}, "a longer one".getBytes(), new byte[70], new byte[200]};
        for (final byte[] now : values) {
            final String hex = HEX.formatHex(now);
            changes.add(Map.of("new", hex, "change", change(now, null)));
            changes.add(Map.of("old", hex, "change", change(null, now)));
            for (final byte[] old : values) {
                changes.add(Map.of("new", hex, "old", HEX.formatHex(old), "change", change(now, old)));
            }
        }
        final Map<String, Object> written = Map.of("hashes", hashes, "changes", changes);
        new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValue(new File(args[0]), written);
    }
}
