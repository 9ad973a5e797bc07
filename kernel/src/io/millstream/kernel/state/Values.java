package io.millstream.kernel.state;

import io.millstream.kernel.core.Encoded;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** Converts values of Spark's rows to those of the cores, and back: there, structs and arrays are lists. */
final class Values {
    private Values() {}

    static Object read(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        if (type instanceof StructType struct) {
            Row row = (Row) value;
            List<Object> fields = new ArrayList<>(struct.size());
            for (int i = 0; i < struct.size(); i++) {
                fields.add(read(row.get(i), struct.fields()[i].dataType()));
            }
            return fields;
        }
        if (type instanceof ArrayType array) {
            List<Object> elements = new ArrayList<>();
            for (Object element : CollectionConverters.asJava((scala.collection.Iterable<?>) value)) {
                elements.add(read(element, array.elementType()));
            }
            return elements;
        }
        return value;
    }

    static Object write(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        if (value instanceof Encoded encoded) {
            return encoded.bytes();
        }
        if (type instanceof StructType struct) {
            List<?> fields = (List<?>) value;
            Object[] row = new Object[struct.size()];
            for (int i = 0; i < row.length; i++) {
                row[i] = write(fields.get(i), struct.fields()[i].dataType());
            }
            return RowFactory.create(row);
        }
        if (type instanceof ArrayType array) {
            List<Object> elements = new ArrayList<>();
            for (Object element : (List<?>) value) {
                elements.add(write(element, array.elementType()));
            }
            return CollectionConverters.asScala(elements);
        }
        return value;
    }
}
