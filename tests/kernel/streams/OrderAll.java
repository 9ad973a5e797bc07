import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.processor.internals.Group;

/** The order in which Kafka Streams itself takes records; the lines are those of the kernel's HeadsMain. */
public final class OrderAll {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder said = new StringBuilder();
        Group group = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            List<String> rest = new ArrayList<>(Arrays.asList(words).subList(Math.min(2, words.length), words.length));
            switch (words[0]) {
                case "group" -> group = new Group(Long.parseLong(words[1]), rest);
                case "add" -> group.add(words[1], rest);
                case "lag" -> group.lag(words[1], Long.parseLong(words[2]));
                default -> said.append(group.take(Long.parseLong(words[1]))).append('\n');
            }
        }
        System.out.print(said);
    }
}
