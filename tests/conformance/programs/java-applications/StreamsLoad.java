import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * The applications of `bench/stream_application.py` in Kafka Streams.
 * Arguments: bootstrap kind input table output state-directory. It runs until its standard input ends.
 */
public class StreamsLoad {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, args[1], args[2], args[3], args[4]);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), options(args[0], args[4], args[5]))) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                System.exit(1);
                return null;
            });
            streams.start();
            while (System.in.read() != -1) {
                continue;
            }
            streams.close(Duration.ofSeconds(120));
        }
    }

    static void build(StreamsBuilder builder, String kind, String input, String table, String output) {
        KStream<String, String> stream = builder.stream(input);
        switch (kind) {
            case "words":
                stream.flatMapValues(line -> Arrays.asList(line.split(" ")))
                        .groupBy((key, word) -> word).count(Materialized.as("counts")).toStream()
                        .mapValues(count -> count.toString()).to(output);
                break;
            case "count":
                stream.groupByKey().count(Materialized.as("counts")).toStream()
                        .mapValues(count -> count.toString()).to(output);
                break;
            case "undo":
                stream.toTable(Materialized.as("rows"))
                        .groupBy((key, value) -> KeyValue.pair(value.split(" ")[0], value))
                        .count(Materialized.as("counts")).toStream()
                        .mapValues(count -> count.toString()).to(output);
                break;
            case "hopping":
                stream.groupByKey()
                        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(10))
                                .advanceBy(Duration.ofSeconds(20)))
                        .count(Materialized.as("counts")).toStream().mapValues(count -> count.toString())
                        .to(output, Produced.with(
                                WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000), Serdes.String()));
                break;
            case "join":
                stream.join(builder.<String, String>table(table, Materialized.as("rows")),
                        (value, row) -> value + "|" + row).to(output);
                break;
            case "sessions":
                stream.groupByKey()
                        .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(10)))
                        .count(Materialized.as("counts")).toStream()
                        .mapValues(count -> count == null ? null : count.toString())
                        .to(output, Produced.with(
                                WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.String()));
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** The defaults, but exactly once, and a thread for each of the two cores. */
    static Properties options(String bootstrap, String application, String directory) {
        Properties options = new Properties();
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        options.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        options.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        options.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        options.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // Repartition and changelog topics have one replica, because there is one broker.
        options.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        return options;
    }
}
