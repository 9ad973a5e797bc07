package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

/**
 * Writes notes and reads them back. Arguments: how many sources, how many other topics, how many bytes of clocks, the
 * limit of one text, and perhaps the number of a source whose text is lost. It prints the length of the longest text,
 * and what is the same again; or what write said.
 */
public final class OffsetNotesMain {
    private OffsetNotesMain() {}

    public static void main(String[] arguments) {
        int[] numbers = new int[arguments.length];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = Integer.parseInt(arguments[i]);
        }
        OffsetNotes notes = new OffsetNotes();
        List<TopicPartition> sources = new ArrayList<>();
        Map<String, Uuid> ids = new HashMap<>();
        for (int i = 0; i < numbers[0]; i++) {
            TopicPartition source = new TopicPartition("source-" + i, 3);
            sources.add(source);
            ids.put(source.topic(), Uuid.randomUuid());
            notes.times.put(source, 1_000L + i);
        }
        for (int i = 0; i < numbers[1]; i++) {
            ids.put("other-" + i, Uuid.randomUuid());
        }
        notes.know(ids);
        byte[] clock = new byte[numbers[2]];
        java.util.Arrays.fill(clock, (byte) 7);
        notes.clocks.put(5, clock);
        Map<TopicPartition, String> texts;
        try {
            texts = notes.write(sources, numbers[3]);
        } catch (IllegalStateException error) {
            System.out.println(error.getMessage());
            return;
        }
        if (numbers.length > 4) {
            texts.remove(sources.get(numbers[4]));
        }
        OffsetNotes again = OffsetNotes.read(texts);
        System.out.println(texts.values().stream().mapToInt(String::length).max().orElse(0));
        System.out.println("times " + again.times.equals(notes.times));
        System.out.println("ids " + ids.entrySet().stream()
                .filter(each -> each.getValue().equals(again.id(each.getKey())))
                .count());
        System.out.println("clocks " + java.util.Arrays.equals(clock, again.clocks.get(5)));
    }
}
