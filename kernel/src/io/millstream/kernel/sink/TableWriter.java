package io.millstream.kernel.sink;

import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes what has changed in a table to its topic, in one transaction; on the driver.
 *
 * <p>Opening it fences whoever was at it before, and has the broker take back what that one had not committed. So what
 * is read of the topic behind that is all that there is, as long as this one is not fenced itself.
 */
public final class TableWriter implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(TableWriter.class);

    private final Map<String, String> options;
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
        this.options = all;
        producer = opened();
    }

    private Producer<byte[], byte[]> opened() {
        Producer<byte[], byte[]> made = Producers.make(options);
        try {
            made.initTransactions();
            return made;
        } catch (RuntimeException error) {
            Producers.close(made);
            throw error;
        }
    }

    /**
     * Write all of these rows, or none: key and value, a value of null where the row of a key is gone. When this
     * returns, whoever reads the topic finds them.
     */
    public void write(Dataset<Row> rows) {
        producer.beginTransaction();
        Iterator<Row> each = rows.toLocalIterator();
        long now = System.currentTimeMillis();
        while (each.hasNext()) {
            Row row = each.next();
            producer.send(new ProducerRecord<>(topic, 0, now, row.<byte[]>getAs(0), row.<byte[]>getAs(1)));
        }
        producer.commitTransaction(); // throws what any of them was refused for
        settle();
    }

    /** A commit is promised before it can be read; the next transaction is not let in until it can. */
    @SuppressWarnings("resource") // it is closed at once
    private void settle() {
        try {
            Producers.close(opened());
        } catch (RuntimeException error) {
            LOG.debug("what was written is committed, and may be seen a little later", error);
        }
    }

    @Override
    public void close() {
        Producers.close(producer);
    }
}
