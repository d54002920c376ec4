import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Streams' word count: words are repartitioned by themselves and counted in a store with a changelog. Every change of a
 * count is written, since nothing is cached. Says RUNNING, and RESTORED with the number of records that the store came
 * back from; ends when it is told to on standard input.
 *
 * Arguments: bootstrap, application id, input topic, output topic, state directory, processing guarantee.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.Bytes(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), options(args))) {
            streams.setGlobalStateRestoreListener(new Restored());
            streams.setStateListener((now, before) -> say(now.toString()));
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                        .StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
            });
            streams.start();
            while (System.in.read() != -1) {
                continue;
            }
            streams.close(Duration.ofSeconds(120));
        }
        say("ENDED");
    }

    static Properties options(String[] args) {
        Properties options = new Properties();
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        options.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        options.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        options.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        options.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // Static, so that the one started after a kill takes its place at once.
        options.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), args[1]);
        // So few a turn that a kill falls between two transactions, and into one.
        options.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), "50");
        return options;
    }

    static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    static class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long begin, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long offset, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            say("RESTORED " + total);
        }
    }
}
