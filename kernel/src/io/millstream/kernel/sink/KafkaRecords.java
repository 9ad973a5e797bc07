package io.millstream.kernel.sink;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Writes rows to Kafka as records: {@code writeStream.format("io.millstream.kernel.sink.KafkaRecords")}.
 *
 * <p>Unlike Spark's own sink, it writes timestamps and transactions, and handles records that Kafka refuses. The
 * columns are those of {@link Rows}, the options those of {@link Options}.
 */
public final class KafkaRecords implements TableProvider {
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new StructType();
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new RecordsTable(schema);
    }
}
