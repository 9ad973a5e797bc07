package io.millstream.kernel.python;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A Python function and how to run it, as the driver passes it to tasks.
 *
 * @param command the Python to start, with its arguments
 * @param environment variables for it, in addition to those of this process
 * @param files names of those of Spark's files (SparkFiles) that are on its path: the user's --py-files
 * @param version the version of the Python that pickled the function
 * @param pickled the function
 * @param patienceMs how long Python may take for one record
 */
public record Program(
        List<String> command,
        Map<String, String> environment,
        List<String> files,
        String version,
        byte[] pickled,
        long patienceMs)
        implements Serializable {
    private static final long serialVersionUID = 1;

    /** Copies the collections, because those that Python passes are not serializable. */
    public Program {
        command = new ArrayList<>(command);
        environment = new HashMap<>(environment);
        files = new ArrayList<>(files);
    }

    /** As a text, because the options of a writer are texts. */
    public String text() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(this);
        }
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    static Program of(String text) throws IOException {
        byte[] bytes = Base64.getDecoder().decode(text);
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
            return (Program) in.readObject();
        } catch (ClassNotFoundException error) {
            throw new IOException(error);
        }
    }
}
