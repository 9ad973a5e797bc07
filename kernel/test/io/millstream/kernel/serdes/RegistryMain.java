package io.millstream.kernel.serdes;

import java.nio.charset.StandardCharsets;
import java.util.List;

/** Asks the schema registry with the description on stdin for an id; prints its schema, or why there is none. */
public final class RegistryMain {
    private RegistryMain() {}

    public static void main(String[] arguments) throws Exception {
        String description = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        try {
            List<String> found = Registry.of(Description.json(description)).schema(Integer.parseInt(arguments[0]));
            System.out.println(found);
        } catch (RegistryError error) {
            System.out.println(error.getMessage());
        }
        System.exit(0); // not before the client's threads end
    }
}
