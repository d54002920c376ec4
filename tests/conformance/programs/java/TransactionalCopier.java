import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic exactly once, a transaction for every few records, in the manner of Kafka's own system test: the
 * offsets are committed in the transaction, and one transaction in eight is aborted and done again. Ends with DONE
 * when everything is copied, with STOPPED after the transaction that was under way when it is asked to end, and with
 * exit code 3 where it cannot go on and should be started again.
 *
 * Arguments: bootstrap, input topic, output topic, transactional id, group, records in a transaction.
 */
public class TransactionalCopier {
    static final Random RANDOM = new Random();
    static volatile boolean stopping;

    public static void main(String[] args) {
        int size = Integer.parseInt(args[5]);
        stopGently(Thread.currentThread());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(args[0], args[4], size);
                KafkaProducer<byte[], byte[]> producer = producer(args[0], args[3])) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            System.out.println("READY");
            while (!stopping && !isDone(consumer)) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copy(consumer, producer, records, args[2]);
                }
            }
            System.out.println(stopping ? "STOPPED" : "DONE");
        } catch (KafkaException error) {
            System.err.println("giving up: " + error);
            Runtime.getRuntime().halt(3);
        }
    }

    static void stopGently(Thread copying) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                copying.join(10_000);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
    }

    static void copy(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> records, String output) {
        producer.beginTransaction();
        try {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
            }
            producer.sendOffsetsToTransaction(positions(consumer), consumer.groupMetadata());
            if (RANDOM.nextInt(8) == 0) {
                producer.flush();
                throw new KafkaException("aborted on purpose");
            }
            producer.commitTransaction();
            System.out.println("COPIED " + records.count());
        } catch (ProducerFencedException error) {
            throw error;
        } catch (KafkaException error) {
            producer.abortTransaction();
            rewind(consumer);
        }
    }

    static Map<TopicPartition, OffsetAndMetadata> positions(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition partition : consumer.assignment()) {
            positions.put(partition, new OffsetAndMetadata(consumer.position(partition)));
        }
        return positions;
    }

    static void rewind(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }

    static boolean isDone(KafkaConsumer<byte[], byte[]> consumer) {
        Collection<TopicPartition> assigned = consumer.assignment();
        if (assigned.isEmpty()) {
            return false;
        }
        Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
        return assigned.stream().allMatch(partition -> consumer.position(partition) >= ends.get(partition));
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, int size) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", group);
        // Static, so that the one started after a kill takes its place at once.
        options.put("group.instance.id", "copier");
        options.put("enable.auto.commit", "false");
        options.put("auto.offset.reset", "earliest");
        options.put("isolation.level", "read_committed");
        options.put("max.poll.records", String.valueOf(size));
        return new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("transactional.id", transactionalId);
        options.put("batch.size", "1024");
        return new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
