package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Runs the programs of traces (tests/snapshots/traces.py) on the operators and the state of a task, and prints a line
 * for each: its steps, one for each record.
 *
 * <p>A line of the input has "program" and "records", "joins", whether it is one of tables and joins, "at_once", and
 * what {@link TaskWorld} asks for. If not each change is emitted at once, there is a last step, of a last commit.
 */
public final class TaskTracesMain {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private TaskTracesMain() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = MAPPER.readTree(line);
            System.out.println(MAPPER.writeValueAsString(
                    asked.path("joins").asBoolean() ? JoinPrograms.run(asked) : Aggregates.run(asked)));
        }
    }
}
