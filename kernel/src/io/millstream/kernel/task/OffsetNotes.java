package io.millstream.kernel.task;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What stands in the metadata of a task's committed offsets. Source: TopicPartitionMetadata.
 *
 * <p>The metadata of one offset, in base64: 1 byte version, 8 bytes stream time of the partition, 16 bytes id of its
 * topic, the ids of all the task's topics by their names' hashes, 2 bytes number of a piece, 2 bytes count of pieces,
 * and the piece. The pieces, in order, are the clocks of operators by their numbers, so that the limit of one offset's
 * metadata is not that of a task with several; if there are too many ids, they are there as well.
 *
 * <p>Each offset has all ids because Kafka deletes that of a topic with it.
 */
final class OffsetNotes {
    /** No record was seen yet. */
    static final long NO_TIME = -1;

    private static final Logger LOG = LoggerFactory.getLogger(OffsetNotes.class);
    private static final byte VERSION = 100;
    /** Kafka Streams' own notes begin with one of these, and then the stream time. */
    private static final int THEIRS = 2;

    private static final int HEAD = 1 + Long.BYTES + 2 * Long.BYTES + Integer.BYTES + 2 * Short.BYTES;

    /** The greatest timestamp of each partition's records. */
    final Map<TopicPartition, Long> times = new HashMap<>();
    /** By {@link #hash}. */
    final SortedMap<Long, Uuid> ids = new TreeMap<>();
    /** By the operators' numbers. */
    final SortedMap<Integer, byte[]> clocks = new TreeMap<>();

    /** From what was committed; what is not to be understood is left out. */
    static OffsetNotes read(Map<TopicPartition, String> metadata) {
        OffsetNotes notes = new OffsetNotes();
        SortedMap<Integer, byte[]> pieces = new TreeMap<>();
        int[] count = {0};
        boolean[] isTheirs = {false};
        metadata.forEach((partition, text) -> {
            try {
                ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(text));
                byte version = bytes.hasRemaining() ? bytes.get() : 0;
                if (version == VERSION && bytes.remaining() >= HEAD - 1) {
                    notes.times.put(partition, bytes.getLong());
                    notes.ids.put(hash(partition.topic()), new Uuid(bytes.getLong(), bytes.getLong()));
                    for (int left = bytes.getInt(); left > 0; left--) {
                        notes.ids.putIfAbsent(bytes.getLong(), new Uuid(bytes.getLong(), bytes.getLong()));
                    }
                    int number = bytes.getShort();
                    count[0] = Math.max(count[0], bytes.getShort());
                    byte[] piece = new byte[bytes.remaining()];
                    bytes.get(piece);
                    pieces.put(number, piece);
                } else if (version > 0 && version <= THEIRS && bytes.remaining() >= Long.BYTES) {
                    isTheirs[0] = true;
                    notes.times.put(partition, bytes.getLong());
                }
            } catch (@SuppressWarnings("unused") IllegalArgumentException | BufferUnderflowException unknown) {
                LOG.warn("the metadata of the committed offset of {} is not known: {}", partition, text);
            }
        });
        if (isTheirs[0]) { // what is left beside other offsets is from before
            return notes;
        }
        pieces.keySet().removeIf(number -> number >= count[0]);
        if (pieces.size() == count[0] && count[0] > 0) {
            notes.readRest(pieces.values());
        } else if (count[0] > 0) {
            LOG.warn("of {} pieces of the notes in committed offsets {} are there; the clocks are lost with the "
                    + "source topic that had the others", count[0], pieces.size());
        }
        return notes;
    }

    private void readRest(Collection<byte[]> pieces) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        pieces.forEach(all::writeBytes);
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(all.toByteArray()))) {
            for (int left = in.readInt(); left > 0; left--) {
                ids.putIfAbsent(in.readLong(), new Uuid(in.readLong(), in.readLong()));
            }
            for (int left = in.readInt(); left > 0; left--) {
                int number = in.readInt();
                clocks.put(number, in.readNBytes(in.readInt()));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /**
     * The metadata for each partition.
     *
     * @param partitions in an order that stays, so that what has not changed need not be committed again
     * @param limit the longest text that the broker takes for one
     */
    Map<TopicPartition, String> write(List<TopicPartition> partitions, int limit) {
        byte[] everywhere = written(ids);
        int room = limit / 4 * 3 - HEAD;
        boolean isEverywhere = everywhere.length <= room / 2;
        if (!isEverywhere) {
            everywhere = written(new TreeMap<>());
        }
        room -= everywhere.length - Integer.BYTES;
        byte[] rest = rest(isEverywhere ? new TreeMap<>() : ids);
        int count = Math.max(1, (rest.length + room - 1) / Math.max(1, room));
        if (room <= 0 || count > partitions.size()) {
            throw new IllegalStateException("what is noted in the metadata of committed offsets takes " + rest.length
                    + " bytes, but there is room for " + Math.max(0, room) + " beside each of " + partitions.size()
                    + " offsets; raise offset.metadata.max.bytes of the brokers, and the same setting here");
        }
        Map<TopicPartition, String> texts = new HashMap<>();
        for (int i = 0; i < partitions.size(); i++) {
            TopicPartition partition = partitions.get(i);
            int from = Math.min(rest.length, i * room);
            int size = Math.min(rest.length - from, room);
            Uuid id = ids.getOrDefault(hash(partition.topic()), Uuid.ZERO_UUID);
            ByteBuffer bytes = ByteBuffer.allocate(HEAD - Integer.BYTES + everywhere.length + size)
                    .put(VERSION)
                    .putLong(times.getOrDefault(partition, NO_TIME))
                    .putLong(id.getMostSignificantBits())
                    .putLong(id.getLeastSignificantBits())
                    .put(everywhere)
                    .putShort((short) i)
                    .putShort((short) count)
                    .put(rest, from, size);
            texts.put(partition, Base64.getEncoder().withoutPadding().encodeToString(bytes.array()));
        }
        return texts;
    }

    private static byte[] written(SortedMap<Long, Uuid> topics) {
        ByteBuffer bytes = ByteBuffer.allocate(Integer.BYTES + topics.size() * 3 * Long.BYTES);
        bytes.putInt(topics.size());
        topics.forEach((topic, id) -> bytes.putLong(topic)
                .putLong(id.getMostSignificantBits())
                .putLong(id.getLeastSignificantBits()));
        return bytes.array();
    }

    private byte[] rest(SortedMap<Long, Uuid> topics) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.write(written(topics));
            out.writeInt(clocks.size());
            for (Map.Entry<Integer, byte[]> each : clocks.entrySet()) {
                out.writeInt(each.getKey());
                out.writeInt(each.getValue().length);
                out.write(each.getValue());
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    /** The ids of these topics. */
    void know(Map<String, Uuid> topics) {
        ids.clear();
        topics.forEach((topic, id) -> ids.put(hash(topic), id));
    }

    /** The id that a topic had; null if that is not noted. */
    Uuid id(String topic) {
        Uuid id = ids.get(hash(topic));
        return Uuid.ZERO_UUID.equals(id) ? null : id;
    }

    /** In place of a topic's name, which may have 249 characters. */
    static long hash(String topic) {
        return UUID.nameUUIDFromBytes(topic.getBytes(StandardCharsets.UTF_8)).getMostSignificantBits();
    }

    /** All partitions of a task, in an order that stays. */
    static List<TopicPartition> ordered(Collection<TopicPartition> partitions) {
        List<TopicPartition> all = new ArrayList<>(partitions);
        all.sort((one, other) -> one.topic().compareTo(other.topic()));
        return all;
    }
}
