package io.millstream.kernel.task;

import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * What the cluster says of the topics of a subtopology.
 *
 * @param cluster its id
 * @param ids of the topics that exist (KIP-516)
 * @param partitions how many they have
 */
record Topics(String cluster, Map<String, Uuid> ids, Map<String, Integer> partitions) {
    static Admin admin(TaskPlan plan) {
        Map<String, Object> settings = new HashMap<>(plan.consumer());
        settings.keySet().retainAll(AdminClientConfig.configNames());
        return Admin.create(settings);
    }

    /** All topics that tasks of this plan read or write. */
    static Set<String> names(TaskPlan plan) {
        Set<String> names = new LinkedHashSet<>(plan.topics().keySet());
        names.addAll(plan.changelogs());
        names.addAll(plan.outputs());
        return names;
    }

    static Topics of(Set<String> names, Admin admin) {
        DescribeTopicsResult asked = admin.describeTopics(names);
        KafkaFuture<String> cluster = admin.describeCluster().clusterId();
        Map<String, Uuid> ids = new HashMap<>();
        Map<String, Integer> partitions = new HashMap<>();
        for (Map.Entry<String, KafkaFuture<TopicDescription>> each :
                asked.topicNameValues().entrySet()) {
            try {
                TopicDescription topic = answer(each.getValue());
                ids.put(each.getKey(), topic.topicId());
                partitions.put(each.getKey(), topic.partitions().size());
            } catch (@SuppressWarnings("unused") UnknownTopicOrPartitionException missing) {
                ids.remove(each.getKey());
            }
        }
        return new Topics(answer(cluster), ids, partitions);
    }

    static long deletionsKeptMs(String topic, Admin admin) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = answer(admin.describeConfigs(List.of(resource)).all()).get(resource);
        boolean isCompacted = config.get(TopicConfig.CLEANUP_POLICY_CONFIG)
                .value()
                .contains(TopicConfig.CLEANUP_POLICY_COMPACT);
        return isCompacted
                ? Long.parseLong(config.get(TopicConfig.DELETE_RETENTION_MS_CONFIG).value())
                : Long.MAX_VALUE;
    }

    /**
     * The ends of changelogs, behind what is not committed, too: Kafka Streams may have been here a moment ago, and its
     * last transaction, to which the committed offsets belong, need not be seen in each topic yet.
     */
    static Map<TopicPartition, Long> ends(Collection<TopicPartition> changelogs, Admin admin) {
        return offsets(changelogs, OffsetSpec.latest(), admin);
    }

    /** The first offsets that there are. */
    static Map<TopicPartition, Long> begins(Collection<TopicPartition> changelogs, Admin admin) {
        return offsets(changelogs, OffsetSpec.earliest(), admin);
    }

    private static Map<TopicPartition, Long> offsets(Collection<TopicPartition> all, OffsetSpec spec, Admin admin) {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        all.forEach(each -> asked.put(each, spec));
        ListOffsetsResult found = admin.listOffsets(asked, new ListOffsetsOptions(IsolationLevel.READ_UNCOMMITTED));
        Map<TopicPartition, Long> offsets = new HashMap<>();
        all.forEach(each -> offsets.put(each, answer(found.partitionResult(each)).offset()));
        return offsets;
    }

    private static <T> T answer(KafkaFuture<T> future) {
        try {
            return future.get();
        } catch (InterruptedException interrupted) {
            throw new InterruptException(interrupted);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof RuntimeException known ? known : new KafkaException(error.getCause());
        }
    }

    /** Whether a topic has a partition of this number. */
    boolean has(String topic, int partition) {
        return partition < partitions.getOrDefault(topic, 0);
    }
}
