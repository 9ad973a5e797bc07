package io.millstream.kernel.serdes;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * Python's description of a function.
 *
 * @param format {@code avro}, {@code json}, {@code list} or {@code protobuf}
 * @param called the serde's name, for messages
 * @param does {@code read}, {@code write} or {@code complain}
 * @param type the type of the values
 * @param rest what only the format uses: the schema and its id; the registry's address
 */
record Description(String format, String called, String does, DataType type, JsonNode rest) {
    private static final ObjectMapper JSON = new ObjectMapper();

    static Description of(String text) {
        JsonNode given = json(text);
        return new Description(
                given.path("format").asText(),
                given.path("called").asText(),
                given.path("does").asText(),
                DataType.fromJson(given.path("type").toString()),
                given);
    }

    static JsonNode json(String text) {
        try {
            return JSON.readTree(text);
        } catch (JsonProcessingException error) {
            // Not with the cause, which quotes the text.
            throw new IllegalArgumentException("this is not JSON, at character " + error.getLocation().getCharOffset());
        }
    }

    DataType input() {
        return does.equals("write") ? type : DataTypes.BinaryType;
    }

    DataType result() {
        return switch (does) {
            case "read" -> type;
            case "write" -> DataTypes.BinaryType;
            default -> DataTypes.StringType;
        };
    }

    Format made() {
        return switch (format) {
            case "avro" -> new AvroFormat(this);
            case "json" -> new JsonFormat(this);
            case "list" -> new ListFormat(this);
            case "protobuf" -> new ProtobufFormat(this);
            default -> throw new IllegalArgumentException("the kernel has no format '" + format + "'");
        };
    }
}
