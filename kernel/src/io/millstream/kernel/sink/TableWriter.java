package io.millstream.kernel.sink;

import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes the changes of a table to its topic, in one transaction. Used on the driver.
 *
 * <p>Opening it fences the previous writer, and has the broker abort what that one had not committed. So what is read
 * of the topic afterwards is complete, as long as this writer is not fenced itself.
 */
public final class TableWriter implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(TableWriter.class);

    private final Map<String, String> options;
    private final Producer<byte[], byte[]> producer;
    private final String topic;

    /**
     * @param options Kafka's options of a producer
     * @param topic the table's topic, which has one partition
     * @param transactionalId used only for this table
     */
    public TableWriter(Map<String, String> options, String topic, String transactionalId) {
        Map<String, String> all = new TreeMap<>(options);
        all.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
        all.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, "true");
        all.put(ProducerConfig.ACKS_CONFIG, "all");
        all.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
        all.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
        this.topic = topic;
        this.options = all;
        producer = opened();
    }

    private Producer<byte[], byte[]> opened() {
        Producer<byte[], byte[]> made = new KafkaProducer<>(new HashMap<>(options));
        try {
            made.initTransactions();
            return made;
        } catch (RuntimeException error) {
            close(made);
            throw error;
        }
    }

    /**
     * Write all of these rows, or none: key and value, where the value is null if the row of the key is gone. When this
     * returns, readers of the topic see them.
     */
    public void write(Dataset<Row> rows) {
        producer.beginTransaction();
        Iterator<Row> each = rows.toLocalIterator();
        long now = System.currentTimeMillis();
        while (each.hasNext()) {
            Row row = each.next();
            producer.send(new ProducerRecord<>(topic, 0, now, row.<byte[]>getAs(0), row.<byte[]>getAs(1)));
        }
        producer.commitTransaction(); // throws the error for which any of them was refused
        settle();
    }

    /** A commit is acknowledged before it is visible; the next transaction cannot begin until it is. */
    @SuppressWarnings("resource") // it is closed at once
    private void settle() {
        try {
            close(opened());
        } catch (RuntimeException error) {
            LOG.debug("the rows are committed, but may become visible a little later", error);
        }
    }

    @Override
    public void close() {
        close(producer);
    }

    /** Close a producer at once and ignore its errors: it is not used any more. */
    private static void close(Producer<byte[], byte[]> producer) {
        Utils.closeQuietly(() -> producer.close(Duration.ZERO), "a producer");
    }
}
