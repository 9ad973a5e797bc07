package io.millstream.kernel;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/**
 * The version of this kernel. Python reads that of the kernel that Spark has found, and compares it with its own.
 *
 * <p>An executor may have another kernel on its class path. So tasks take the driver's version and digest there, and
 * call {@link #require}.
 */
public final class Kernel {
    private static final Properties MADE_FROM = read();

    private Kernel() {}

    /** The version of Millstream to which this kernel belongs. */
    public static String version() {
        return MADE_FROM.getProperty("version");
    }

    /** A digest of the sources of this kernel. */
    public static String digest() {
        return MADE_FROM.getProperty("digest");
    }

    /**
     * Checks that this is the required kernel.
     *
     * @param version the required version
     * @param digest its digest
     * @throws IllegalStateException it is another one
     */
    public static void require(String version, String digest) {
        if (!digest.equals(digest())) {
            throw new IllegalStateException(
                    "this process has the Millstream kernel " + name(version(), digest())
                            + " on its class path, but the driver has " + name(version, digest)
                            + ": remove the jar from the cluster's class path; Millstream delivers its own");
        }
    }

    private static String name(String version, String digest) {
        return version + " (" + digest.substring(0, 12) + ")";
    }

    private static Properties read() {
        Properties properties = new Properties();
        // From the class, not from its loader, so that it is the file of the very jar that has the class.
        try (InputStream file = Kernel.class.getResourceAsStream("kernel.properties")) {
            if (file == null) {
                throw new IllegalStateException("the Millstream kernel was built without kernel.properties");
            }
            properties.load(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return properties;
    }
}
