package io.millstream.kernel.serdes;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/** Avro, whose readers need the schema with which a record was written. It is requested from the registry by id. */
final class AvroFormat implements Format {
    private final Schema schema;
    private final Registry registry;
    private final byte[] header;
    private final AvroToSpark toSpark;
    private final AvroFromSpark fromSpark;
    private final GenericDatumWriter<Object> writer;
    private final Map<Integer, GenericDatumReader<Object>> readers = new ConcurrentHashMap<>();
    private final ThreadLocal<BinaryDecoder> decoders = new ThreadLocal<>();
    private final ThreadLocal<BinaryEncoder> encoders = new ThreadLocal<>();

    AvroFormat(Description given) {
        Schema.Parser parser = new Schema.Parser();
        Schema last = null;
        for (var text : given.rest().path("schemas")) {
            last = parser.parse(text.asText());
        }
        schema = last;
        boolean writes = given.does().equals("write");
        registry = writes ? null : Registry.of(given.rest().path("registry"));
        header = Header.of(given.rest().path("id").asInt());
        toSpark = writes ? null : AvroToSpark.of(schema, given.type());
        fromSpark = writes ? AvroFromSpark.of("", schema, given.type()) : null;
        writer = writes ? new GenericDatumWriter<>(schema) : null;
    }

    @Override
    public Object read(byte[] data) {
        GenericDatumReader<Object> reader = reader(Header.id(data));
        try {
            BinaryDecoder decoder = DecoderFactory.get()
                    .binaryDecoder(data, Header.SIZE, data.length - Header.SIZE, decoders.get());
            decoders.set(decoder);
            Object value = toSpark.apply(reader.read(null, new AvroRecord(decoder)));
            if (!decoder.isEnd()) {
                throw new UnreadableException("Avro that ends where its record does");
            }
            return value;
        } catch (UnreadableException error) {
            throw error;
        } catch (IOException | RuntimeException error) { // Avro may raise anything if the bytes make no sense
            throw new UnreadableException("Avro that its schema can read" + reason(error));
        } catch (StackOverflowError error) { // Spark would end the process, because it considers this fatal
            throw new UnreadableException("Avro nested less deeply (" + error.getClass().getSimpleName() + ")");
        }
    }

    /** Only the class: Avro's messages, and those of numbers, quote the record. */
    private static String reason(Exception error) {
        return " (" + error.getClass().getSimpleName() + ")";
    }

    private GenericDatumReader<Object> reader(int id) {
        GenericDatumReader<Object> known = readers.get(id);
        if (known != null) {
            return known;
        }
        List<String> texts = registry.schema(id);
        if (texts == null) {
            throw new UnreadableException("a schema id that the registry knows, and it does not know " + id);
        }
        Schema.Parser parser = new Schema.Parser();
        Schema written = null;
        try {
            for (String text : texts) {
                written = parser.parse(text);
            }
        } catch (AvroRuntimeException error) {
            throw new UnreadableException("Avro, and the schema of id " + id + " is of another kind" + reason(error));
        }
        GenericDatumReader<Object> made = new GenericDatumReader<>(written, schema);
        readers.put(id, made);
        return made;
    }

    @Override
    public byte[] write(Object value) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(128);
        out.writeBytes(header);
        try {
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, encoders.get());
            encoders.set(encoder);
            writer.write(fromSpark.apply(value), encoder);
            encoder.flush();
            return out.toByteArray();
        } catch (IOException | AvroRuntimeException | ClassCastException | NullPointerException error) {
            throw new UnwritableException("it does not fit" + reason(error));
        }
    }
}
