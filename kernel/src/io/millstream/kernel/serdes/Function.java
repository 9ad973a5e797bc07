package io.millstream.kernel.serdes;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One half of a serde, as a Spark function.
 *
 * <p>A function that reads returns null for bytes that it cannot read, so that Spark can still report which record it
 * was. A function that complains returns the reason why they cannot be read. If the registry cannot be queried, both
 * throw a {@link RegistryError}. It is an {@code Error}, so that no handler blames the record.
 */
public final class Function implements ScalarFunction<Object> {
    private static final long serialVersionUID = 1;
    private static final Map<String, Format> FORMATS = new ConcurrentHashMap<>();

    private final String name;
    private final String text;
    private transient Description description;
    private transient Format format;

    Function(String name, String text) {
        this.name = name;
        this.text = text;
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {description().input()};
    }

    @Override
    public DataType resultType() {
        return description().result();
    }

    @Override
    public String name() {
        return description().format() + "_" + description().does();
    }

    @Override
    public String canonicalName() {
        return "io.millstream.serdes." + name;
    }

    /** What a plan shows. */
    @Override
    @SuppressWarnings("super")
    public String toString() {
        return name();
    }

    /** Spark calls this if it exists, without a row around the argument. */
    public Object invoke(byte[] data) {
        return data == null ? null : answer(data);
    }

    /** The same for a struct that is written. */
    public Object invoke(InternalRow value) {
        return value == null ? null : answer(value);
    }

    @Override
    public Object produceResult(InternalRow input) {
        return input.isNullAt(0) ? null : answer(input.get(0, description().input()));
    }

    private Object answer(Object given) {
        return switch (description().does()) {
            case "read" -> read((byte[]) given);
            case "complain" -> UTF8String.fromString(complaint((byte[]) given));
            default -> write(given);
        };
    }

    @SuppressWarnings("unused") // another function reports why it cannot be read
    private Object read(byte[] data) {
        try {
            return format().read(data);
        } catch (UnreadableException error) {
            return null;
        }
    }

    private String complaint(byte[] data) {
        try {
            format().read(data);
            return "";
        } catch (UnreadableException error) {
            return error.getMessage();
        }
    }

    private byte[] write(Object value) {
        try {
            return format().write(value);
        } catch (UnwritableException error) {
            String said = "a value with the serde '" + description().called() + "' is not what its schema takes: ";
            throw new UnwritableException(said + error.getMessage());
        }
    }

    private Description description() {
        if (description == null) {
            description = Description.of(text);
        }
        return description;
    }

    private Format format() {
        if (format == null) {
            // Spark creates a new one for each task; the registry's answers are kept.
            format = FORMATS.computeIfAbsent(text, each -> description().made());
        }
        return format;
    }
}
