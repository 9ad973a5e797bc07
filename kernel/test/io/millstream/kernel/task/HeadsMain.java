package io.millstream.kernel.task;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Takes records in the order of a task. Lines: `group`, max.task.idle.ms and names of topics, which have a partition
 * each; `add`, a topic and timestamps; `lag`, a topic and a number; `take` and the time in ms, which prints the topic
 * and the offset of the next record and the stream time, or `wait`.
 */
public final class HeadsMain {
    private HeadsMain() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Map<String, Long> lags = new HashMap<>();
        Map<String, Long> offsets = new HashMap<>();
        StringBuilder said = new StringBuilder();
        Heads heads = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("group")) {
                lags.clear();
                offsets.clear();
                List<TopicPartition> all = new ArrayList<>();
                for (int i = 2; i < words.length; i++) {
                    all.add(new TopicPartition(words[i], 0));
                }
                heads = new Heads(all, Map.of(), Long.parseLong(words[1]), partition -> {
                    Long lag = lags.get(partition.topic());
                    return lag == null ? OptionalLong.empty() : OptionalLong.of(lag);
                }, Times.clock(List.of()));
            } else if (words[0].equals("add") && heads != null) {
                List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int i = 2; i < words.length; i++) {
                    records.add(HeadsMain.record(words[1], offsets.merge(words[1], 1L, Long::sum), words[i]));
                }
                heads.add(new TopicPartition(words[1], 0), records);
            } else if (words[0].equals("lag")) {
                lags.put(words[1], Long.parseLong(words[2]));
            } else if (heads != null) {
                boolean isReady = heads.isReady(TimeUnit.MILLISECONDS.toNanos(Long.parseLong(words[1])));
                ConsumerRecord<byte[], byte[]> record = isReady ? heads.next() : null;
                said.append(record == null ? "wait" : record.topic() + " " + record.offset() + " " + heads.streamTime())
                        .append('\n');
            }
        }
        System.out.print(said);
    }

    private static ConsumerRecord<byte[], byte[]> record(String topic, long offset, String timestamp) {
        return new ConsumerRecord<>(
                topic,
                0,
                offset,
                Long.parseLong(timestamp),
                org.apache.kafka.common.record.TimestampType.CREATE_TIME,
                0,
                0,
                new byte[0],
                new byte[0],
                new org.apache.kafka.common.header.internals.RecordHeaders(),
                java.util.Optional.empty());
    }
}
