import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client, driven by one JSON command per line; see `peers/pipe.py` for the commands. */
public class JavaPeer {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Member> MEMBERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode reply = JSON.createObjectNode();
            try {
                reply.set("result", answer(JSON.readTree(line)));
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                reply.put("error", cause.toString());
            }
            out.println(JSON.writeValueAsString(reply));
            out.flush();
        }
        System.exit(0);
    }

    static JsonNode answer(JsonNode command) throws Exception {
        switch (command.get("op").asText()) {
            case "produce": return produce(command);
            case "consume": return consume(command);
            case "join": return join(command);
            case "assignment": return assignment(member(command).assigned);
            case "poll": return poll(command);
            case "commit": return member(command).commit();
            case "leave": return leave(command);
            case "admin": return admin(command);
            default: throw new IllegalArgumentException("unknown op");
        }
    }

    static Properties properties(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("bootstrap").asText());
        if (command.has("options")) {
            command.get("options").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
        }
        return properties;
    }

    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static JsonNode produce(JsonNode command) throws Exception {
        Properties properties = properties(command);
        properties.put("compression.type", command.get("codec").asText());
        properties.put("linger.ms", "20");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : command.get("records")) {
                sent.add(producer.send(producerRecord(command.get("topic").asText(), record)));
            }
            producer.flush();
        }
        ArrayNode offsets = JSON.createArrayNode();
        for (Future<RecordMetadata> future : sent) {
            offsets.addObject().put("partition", future.get().partition()).put("offset", future.get().offset());
        }
        return offsets;
    }

    static ProducerRecord<byte[], byte[]> producerRecord(String topic, JsonNode record) {
        Integer partition = record.hasNonNull("partition") ? record.get("partition").asInt() : null;
        Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
        ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                topic, partition, timestamp, bytes(record.get("key")), bytes(record.get("value")));
        for (JsonNode header : record.get("headers")) {
            made.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return made;
    }

    static ObjectNode recordJson(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("key", base64(record.key())).put("value", base64(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(base64(header.value()));
        }
        return node;
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties properties) {
        properties.putIfAbsent("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static JsonNode consume(JsonNode command) {
        Properties properties = properties(command);
        properties.put("enable.auto.commit", "false");
        ArrayNode records = JSON.createArrayNode();
        long deadline = System.currentTimeMillis() + command.get("timeout_ms").asLong();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(properties)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo info : consumer.partitionsFor(command.get("topic").asText())) {
                partitions.add(new TopicPartition(info.topic(), info.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (records.size() < command.get("count").asInt() && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(recordJson(record)));
            }
        }
        return records;
    }

    /** One group member on its own thread, since a Java consumer rebalances only inside poll. */
    static class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> topics = new ArrayList<>();
        final ConcurrentLinkedQueue<ObjectNode> polled = new ConcurrentLinkedQueue<>();
        volatile Set<TopicPartition> assigned = Set.of();
        volatile CompletableFuture<Boolean> commit = null;
        volatile boolean leaving = false;

        Member(Properties properties, JsonNode names) {
            consumer = consumer(properties);
            names.forEach(name -> topics.add(name.asText()));
            setDaemon(true);
        }

        @Override public void run() {
            try (consumer) {
                consumer.subscribe(topics);
                while (!leaving) {
                    consumer.poll(Duration.ofMillis(50)).forEach(record -> polled.add(recordJson(record)));
                    assigned = Set.copyOf(consumer.assignment());
                    commitWhenAsked();
                }
            }
        }

        void commitWhenAsked() {
            CompletableFuture<Boolean> asked = commit;
            if (asked == null) return;
            commit = null;
            try {
                consumer.commitSync();
                asked.complete(true);
            } catch (RuntimeException error) {
                asked.completeExceptionally(error);
            }
        }

        JsonNode commit() throws Exception {
            CompletableFuture<Boolean> asked = new CompletableFuture<>();
            commit = asked;
            return JSON.valueToTree(asked.get());
        }
    }

    static Member member(JsonNode command) {
        return MEMBERS.get(command.get("member").asText());
    }

    static JsonNode join(JsonNode command) {
        Properties properties = properties(command);
        properties.put("group.id", command.get("group").asText());
        properties.put("enable.auto.commit", "false");
        properties.put("heartbeat.interval.ms", "300");
        Member member = new Member(properties, command.get("topics"));
        MEMBERS.put(command.get("member").asText(), member);
        member.start();
        return JSON.valueToTree(true);
    }

    static JsonNode assignment(Collection<TopicPartition> partitions) {
        ArrayNode assigned = JSON.createArrayNode();
        for (TopicPartition partition : partitions) {
            assigned.addArray().add(partition.topic()).add(partition.partition());
        }
        return assigned;
    }

    static JsonNode poll(JsonNode command) throws Exception {
        ArrayNode records = JSON.createArrayNode();
        Member member = member(command);
        long deadline = System.currentTimeMillis() + command.get("timeout_ms").asLong();
        while (records.size() < command.get("count").asInt() && System.currentTimeMillis() < deadline) {
            ObjectNode record = member.polled.poll();
            if (record != null) records.add(record); else Thread.sleep(10);
        }
        return records;
    }

    static JsonNode leave(JsonNode command) throws Exception {
        Member member = MEMBERS.remove(command.get("member").asText());
        member.leaving = true;
        member.join();
        return JSON.valueToTree(true);
    }

    /** Every administrative call of a topic's and a group's life, in order; the answers by name. */
    static JsonNode admin(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        String group = command.get("group").asText();
        Map<String, Object> seen = new TreeMap<>();
        try (Admin admin = Admin.create(properties(command))) {
            if (command.get("phase").asText().equals("before")) {
                createAndAlter(admin, topic, seen);
            } else {
                readAndDelete(admin, topic, group, seen);
            }
        }
        return JSON.valueToTree(seen);
    }

    static void createAndAlter(Admin admin, String topic, Map<String, Object> seen) throws Exception {
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "123456"));
        admin.createTopics(List.of(wanted)).all().get();
        seen.put("listed", admin.listTopics().names().get().contains(topic));
        seen.put("retention", config(admin, topic, "retention.ms"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("max.message.bytes", "54321"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        seen.put("partitions", description.partitions().size());
        seen.put("nodes", admin.describeCluster().nodes().get().size());
    }

    static String config(Admin admin, String topic, String name) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
    }

    static void readAndDelete(Admin admin, String topic, String group, Map<String, Object> seen) throws Exception {
        seen.put("altered", config(admin, topic, "max.message.bytes"));
        TopicPartition first = new TopicPartition(topic, 0);
        seen.put("latest", admin.listOffsets(Map.of(first, OffsetSpec.latest())).partitionResult(first).get().offset());
        admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).all().get();
        seen.put("earliest",
                admin.listOffsets(Map.of(first, OffsetSpec.earliest())).partitionResult(first).get().offset());
        seen.put("grouped", admin.listGroups().all().get().stream().anyMatch(listed -> listed.groupId().equals(group)));
        seen.put("state", admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString());
        seen.put("committed",
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first).offset());
        admin.deleteConsumerGroups(List.of(group)).all().get();
        admin.deleteTopics(List.of(topic)).all().get();
        seen.put("left", admin.listTopics().names().get().contains(topic));
    }
}
