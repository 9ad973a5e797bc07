package io.millstream.kernel.sink;

import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/**
 * Writes what has changed in a table to its topic, in one transaction; on the driver.
 *
 * <p>Opening it fences whoever was at it before, and has the broker take back what that one had not committed. So what
 * is read of the topic behind that is all that there is, as long as this one is not fenced itself.
 */
public final class TableWriter implements AutoCloseable {
    private final Producer<byte[], byte[]> producer;
    private final String topic;

    /**
     * @param options Kafka's own, of a producer
     * @param topic has one partition
     * @param transactionalId is the table's own
     */
    public TableWriter(Map<String, String> options, String topic, String transactionalId) {
        Map<String, String> all = new TreeMap<>(options);
        all.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
        all.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, "true");
        all.put(ProducerConfig.ACKS_CONFIG, "all");
        this.topic = topic;
        producer = Producers.make(all);
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            close();
            throw error;
        }
    }

    /** Write all of these rows, or none: key and value, a value of null where the row of a key is gone. */
    public void write(Dataset<Row> rows) {
        producer.beginTransaction();
        Iterator<Row> each = rows.toLocalIterator();
        long now = System.currentTimeMillis();
        while (each.hasNext()) {
            Row row = each.next();
            producer.send(new ProducerRecord<>(topic, 0, now, row.<byte[]>getAs(0), row.<byte[]>getAs(1)));
        }
        producer.commitTransaction(); // throws what any of them was refused for
    }

    @Override
    public void close() {
        Producers.close(producer);
    }
}
