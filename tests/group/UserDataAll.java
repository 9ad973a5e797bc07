// Writes userdata.json: user data that Kafka Streams' own classes make, as hexadecimal text.
//
//     mvn -q -f tests/snapshots/describe/pom.xml dependency:copy-dependencies
//     java -cp 'tests/snapshots/describe/target/dependency/*' tests/group/UserDataAll.java tests/group/userdata.json

import java.io.File;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

public class UserDataAll {
    static final UUID PROCESS = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");

    static String hex(final ByteBuffer buffer) {
        buffer.rewind();
        final byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    public static void main(final String[] args) throws Exception {
        final Map<String, Map<String, String>> all = new TreeMap<>();
        all.put("subscription", new TreeMap<>());
        all.put("assignment", new TreeMap<>());
        for (int version = 1; version <= 11; version++) {
            final SubscriptionInfo subscription = new SubscriptionInfo(
                version, version < 3 ? -1 : 11, new ProcessId(PROCESS), "höst:8080",
                Map.of(new TaskId(0, 3), -2L, new TaskId(7, 1), 1234567890123L), (byte) -5, 4, Map.of("zone", "öst"));
            all.get("subscription").put(String.valueOf(version), hex(subscription.encode()));
            final AssignmentInfo assignment = new AssignmentInfo(
                version, version < 3 ? -1 : 11, List.of(new TaskId(0, 3), new TaskId(7, 1)),
                Map.of(new TaskId(1, 2), Set.of(new TopicPartition("t\u0000ö\uD83D\uDE00", 4))),
                Map.of(new HostInfo("a", 80), Set.of(new TopicPartition("lines", 3))),
                Map.of(new HostInfo("b", 81), Set.of(new TopicPartition("lines", 2))), 3);
            assignment.setNextRebalanceTime(1700000000000L);
            all.get("assignment").put(String.valueOf(version), hex(assignment.encode()));
        }
        new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValue(new File(args[0]), all);
    }
}
