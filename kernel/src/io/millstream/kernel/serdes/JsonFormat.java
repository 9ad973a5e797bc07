package io.millstream.kernel.serdes;

import org.apache.spark.sql.types.StructType;

/** JSON by a schema, which is a type of Spark's; if it is {@code headed}, after the id of a schema in a registry. */
final class JsonFormat implements Format {
    private final boolean isObject;
    private final boolean headed;
    private final byte[] header;
    private final JsonToSpark reads;
    private final JsonFromSpark writes;

    JsonFormat(Description given) {
        boolean writing = given.does().equals("write");
        isObject = given.type() instanceof StructType;
        headed = given.rest().path("headed").asBoolean();
        header = headed ? Header.of(given.rest().path("id").asInt()) : new byte[0];
        reads = writing ? null : JsonToSpark.of(given.type());
        writes = writing ? JsonFromSpark.of(given.type()) : null;
    }

    @Override
    public Object read(byte[] data) {
        if (headed) {
            Header.id(data);
        }
        JsonCursor in = new JsonCursor(data, header.length);
        try {
            if (in.isNull()) {
                throw new UnreadableException("a JSON value, and this is null; a record without a value has no bytes");
            }
            Object value = reads.read(in);
            in.end();
            return value;
        } catch (JsonMisfit misfit) {
            JsonCursor whole = new JsonCursor(data, header.length);
            whole.copy(null); // if it is no JSON, that is the reason
            whole.end();
            throw new UnreadableException(misfit.said(isObject));
        }
    }

    @Override
    public byte[] write(Object value) {
        JsonOut out = new JsonOut();
        out.bytes(header, 0, header.length);
        writes.write(value, out);
        return out.toBytes();
    }
}
