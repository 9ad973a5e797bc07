package io.millstream.kernel.serdes;

import io.millstream.kernel.Kernel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The functions for formats that Spark does not know, as a catalog, from which Spark calls functions by name.
 *
 * <p>Python describes a function ({@link #nameOf(String)}) and calls it by the name that is returned. The name reveals
 * nothing about the description, which may have a password for a registry.
 */
public final class Functions implements FunctionCatalog {
    private static final Map<String, Function> FUNCTIONS = new ConcurrentHashMap<>();

    private String name;

    /**
     * The name of a function from now on. It is no overload of {@link #name()}: py4j finds only one method of a name,
     * and which one depends on the class-data archive that Java was started with.
     *
     * @param description as {@link Description} reads it
     */
    public static String nameOf(String description) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            byte[] hash = digest.digest((Kernel.digest() + description).getBytes(StandardCharsets.UTF_8));
            String name = "f" + HexFormat.of().formatHex(hash, 0, 12);
            FUNCTIONS.computeIfAbsent(name, each -> new Function(each, description));
            return name;
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void initialize(String called, CaseInsensitiveStringMap options) {
        name = called;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Identifier[] listFunctions(String[] namespace) {
        return new Identifier[0];
    }

    @Override
    public UnboundFunction loadFunction(Identifier identifier) {
        BoundFunction function = FixedWidth.FUNCTIONS.getOrDefault(identifier.name(), FUNCTIONS.get(identifier.name()));
        if (function == null) {
            throw new IllegalArgumentException("the kernel has no description of the function " + identifier.name());
        }
        return new Unbound(function);
    }

    private record Unbound(BoundFunction function) implements UnboundFunction {
        @Override
        public String name() {
            return function.name();
        }

        @Override
        public BoundFunction bind(StructType input) {
            return function;
        }

        @Override
        public String description() {
            return "a Millstream serde";
        }
    }
}
