import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs topologies of Kafka Streams over records from standard input, one run after the other. Keys and values are
 * strings. A run is: a line "RUN name", lines "topic TAB key TAB value TAB timestamp TAB header" with \N for null or no
 * header, a line "END".
 * The answer is the records of the topic "out" in the same form, then "END".
 * `streams_topologies.py` has the same topologies in Python, by the same names. A name that begins with @ is the text of
 * a `RandomTopology`.
 */
public class StreamsOracle {
    interface Build {
        void on(StreamsBuilder builder);
    }

    static final Map<String, Build> TOPOLOGIES = new LinkedHashMap<>();

    static KStream<String, String> stream(StreamsBuilder b, String topic) {
        return b.stream(topic);
    }

    static KTable<String, String> table(StreamsBuilder b, String topic) {
        return b.table(topic);
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> store(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name)
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String());
    }

    static Materialized<String, String, WindowStore<Bytes, byte[]>> windowStore(String name) {
        return Materialized.<String, String, WindowStore<Bytes, byte[]>>as(name)
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String());
    }

    /** With the default retention, Kafka Streams never sends windows that stream time leaves behind in one step. */
    static Materialized<String, String, WindowStore<Bytes, byte[]>> longStore(String name) {
        return windowStore(name).withRetention(Duration.ofHours(1));
    }

    static Materialized<String, String, SessionStore<Bytes, byte[]>> sessionStore(String name) {
        return Materialized.<String, String, SessionStore<Bytes, byte[]>>as(name)
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String());
    }

    static String add(String key, String value, String aggregate) {
        return aggregate + value;
    }

    static String subtract(String key, String value, String aggregate) {
        String left = aggregate.replaceFirst(Pattern.quote(value), "");
        return left.isEmpty() ? null : left;
    }

    static String pair(String left, String right) {
        return left + "|" + right;
    }

    /** Null for the value "9", so that groups and keys can be missing. */
    static String group(String value) {
        return value == null || value.contains("9") ? null : "g" + Integer.parseInt(value) % 3;
    }

    static String referred(String value) {
        return value.equals("9") ? null : "k" + (Integer.parseInt(value) % 3 + 1);
    }

    static String windowed(Windowed<String> key) {
        return key.key() + "@" + key.window().start() + "-" + key.window().end();
    }

    static boolean small(String key, String value) {
        return value == null || value.compareTo("5") < 0;
    }

    static KGroupedTable<String, String> regrouped(KTable<String, String> table) {
        return table.groupBy((key, value) -> KeyValue.pair(group(value), value));
    }

    static TimeWindows tumbling() {
        return TimeWindows.ofSizeAndGrace(Duration.ofMillis(20), Duration.ofMillis(10));
    }

    static TimeWindows hopping() {
        return TimeWindows.ofSizeAndGrace(Duration.ofMillis(30), Duration.ofMillis(5)).advanceBy(Duration.ofMillis(10));
    }

    static SessionWindows session() {
        return SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(8), Duration.ofMillis(12));
    }

    static SlidingWindows sliding() {
        return SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(15));
    }

    static void closed(KTable<Windowed<String>, String> table) {
        table.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream((key, value) -> windowed(key)).to("out");
    }

    static JoinWindows joinWindows() {
        return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(15)).before(Duration.ofMillis(5));
    }

    /** A record without partner is joined with null at once. */
    @SuppressWarnings("deprecation")
    static JoinWindows joinWindowsAtOnce() {
        return JoinWindows.of(Duration.ofMillis(10)).before(Duration.ofMillis(5)).grace(Duration.ofMillis(15));
    }

    static String merge(String key, String one, String other) {
        return one + "+" + other;
    }

    static CogroupedKStream<String, String> cogrouped(StreamsBuilder b) {
        return stream(b, "a").groupByKey().<String>cogroup(StreamsOracle::add)
                .cogroup(stream(b, "b").groupByKey(), (key, value, agg) -> agg + "-" + value);
    }

    static KTable<String, String> versioned(StreamsBuilder b, String topic, long historyMs) {
        return b.table(topic, Materialized.as(
                Stores.persistentVersionedKeyValueStore(topic + "-versions", Duration.ofMillis(historyMs))));
    }

    static KStream<String, String> withSums(StreamsBuilder b) {
        b.addStateStore(Stores.keyValueStoreBuilder(
                Stores.inMemoryKeyValueStore("sums"), Serdes.String(), Serdes.String()));
        return stream(b, "a");
    }

    /** Appends values, and sends and removes them when a timer is due. */
    static class Sums extends ContextualProcessor<String, String, String, String> {
        final PunctuationType type;
        final long intervalMs;
        KeyValueStore<String, String> sums;

        Sums(PunctuationType type, long intervalMs) {
            this.type = type;
            this.intervalMs = intervalMs;
        }

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            sums = context.getStateStore("sums");
            context.schedule(Duration.ofMillis(intervalMs), type, this::onTimer);
        }

        @Override
        public void process(Record<String, String> record) {
            if (record.key() == null) {
                return;
            }
            String before = sums.get(record.key());
            String value = (before == null ? "" : before) + record.value();
            sums.put(record.key(), value);
            context().forward(record.withValue(value));
        }

        void onTimer(long time) {
            Map<String, String> found = new LinkedHashMap<>();
            try (KeyValueIterator<String, String> all = sums.all()) {
                all.forEachRemaining(row -> found.put(row.key, row.value));
            }
            found.forEach((key, value) -> {
                sums.delete(key);
                context().forward(new Record<>(key, time + ":" + value, time));
            });
        }
    }

    /** Looks the rows of a table's store up. */
    static class LookUp extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            if (record.key() == null) {
                return;
            }
            TimestampedKeyValueStore<String, String> table = context().getStateStore("t");
            ValueAndTimestamp<String> row = table.get(record.key());
            context().forward(record.withValue(pair(record.value(), row == null ? null : row.value())));
        }
    }

    static {
        TOPOLOGIES.put("stateless", b -> stream(b, "a")
                .filter((key, value) -> value == null || !value.equals("3"))
                .flatMapValues(value -> value == null ? Arrays.asList("null") : Arrays.asList(value, value + "x"))
                .to("out"));
        TOPOLOGIES.put("branches", b -> {
            Map<String, KStream<String, String>> branches = stream(b, "a").split(Named.as("b-"))
                    .branch((key, value) -> key == null, Branched.as("nokey"))
                    .branch(StreamsOracle::small, Branched.as("small"))
                    .defaultBranch(Branched.as("rest"));
            branches.get("b-rest").mapValues(value -> value + "rest")
                    .merge(branches.get("b-small").mapValues(value -> value + "small")).to("out");
        });
        TOPOLOGIES.put("count", b -> stream(b, "a").groupByKey().count().toStream().mapValues(n -> n.toString()).to("out"));
        TOPOLOGIES.put("count_by", b -> stream(b, "a").groupBy((key, value) -> group(value)).count()
                .toStream().mapValues(n -> n.toString()).to("out"));
        TOPOLOGIES.put("reduce", b -> stream(b, "a").groupByKey().reduce((one, other) -> one + other).toStream().to("out"));
        TOPOLOGIES.put("aggregate", b -> stream(b, "a").groupByKey()
                .aggregate(() -> "", StreamsOracle::add, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("aggregate_to_null", b -> stream(b, "a").groupByKey()
                .aggregate(() -> "", (key, value, agg) -> value.equals("4") ? null : agg + value, store("agg"))
                .toStream().to("out"));
        TOPOLOGIES.put("table", b -> table(b, "t").toStream().to("out"));
        TOPOLOGIES.put("table_filter", b -> table(b, "t").filter(StreamsOracle::small).toStream().to("out"));
        TOPOLOGIES.put("table_filter_named", b -> table(b, "t").filter(StreamsOracle::small, store("f")).toStream().to("out"));
        TOPOLOGIES.put("stored_table_filter", b -> b.<String, String>table("t", store("t"))
                .filter(StreamsOracle::small).toStream().to("out"));
        TOPOLOGIES.put("stored_table_filter_named", b -> b.<String, String>table("t", store("t"))
                .filter(StreamsOracle::small, store("f")).toStream().to("out"));
        TOPOLOGIES.put("table_map", b -> table(b, "t").mapValues(value -> value + "m").toStream().to("out"));
        TOPOLOGIES.put("table_map_to_null", b -> table(b, "t").mapValues(value -> value.equals("2") ? null : value + "m", store("m"))
                .toStream().to("out"));
        TOPOLOGIES.put("table_count", b -> regrouped(table(b, "t")).count().toStream().mapValues(n -> n.toString()).to("out"));
        TOPOLOGIES.put("table_aggregate", b -> regrouped(table(b, "t"))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("table_reduce", b -> regrouped(table(b, "t"))
                .reduce((one, other) -> one + other, (one, other) -> subtract("", other, one), store("agg"))
                .toStream().to("out"));
        TOPOLOGIES.put("filtered_table_aggregate", b -> regrouped(table(b, "t").filter(StreamsOracle::small)
                .mapValues(value -> value))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("aggregate_of_aggregate", b -> regrouped(stream(b, "a").groupByKey()
                .reduce((one, other) -> other)).count().toStream().mapValues(n -> n.toString()).to("out"));
        TOPOLOGIES.put("filter_of_aggregate", b -> stream(b, "a").groupByKey()
                .reduce((one, other) -> other).filter(StreamsOracle::small).toStream().to("out"));
        TOPOLOGIES.put("join_tables", b -> table(b, "t").join(table(b, "u"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("left_join_tables", b -> table(b, "t").leftJoin(table(b, "u"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("outer_join_tables", b -> table(b, "t").outerJoin(table(b, "u"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("join_tables_named", b -> table(b, "t").join(table(b, "u"), StreamsOracle::pair, store("j")).toStream().to("out"));
        TOPOLOGIES.put("join_of_joins", b -> table(b, "t").leftJoin(table(b, "u"), StreamsOracle::pair)
                .join(table(b, "v"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("outer_of_inner", b -> table(b, "t").join(table(b, "u"), StreamsOracle::pair)
                .outerJoin(table(b, "v"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("join_of_filtered", b -> table(b, "t").filter(StreamsOracle::small)
                .leftJoin(table(b, "u").mapValues(value -> value + "m"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("filter_of_join", b -> table(b, "t").outerJoin(table(b, "u"), StreamsOracle::pair)
                .filter((key, value) -> !value.contains("1")).toStream().to("out"));
        TOPOLOGIES.put("aggregate_of_join", b -> table(b, "t").leftJoin(table(b, "u"), StreamsOracle::pair)
                .groupBy((key, value) -> KeyValue.pair(value.substring(value.length() - 1), value))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("aggregate_of_outer_join", b -> table(b, "t").outerJoin(table(b, "u"), StreamsOracle::pair)
                .groupBy((key, value) -> KeyValue.pair(value.substring(value.length() - 1), value))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("join_stream_table", b -> stream(b, "a").join(table(b, "t"), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("left_join_stream_table", b -> stream(b, "a").leftJoin(table(b, "t"), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("rekeyed_join_stream_table", b -> stream(b, "a").selectKey((key, value) -> value)
                .leftJoin(table(b, "t"), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("join_stream_aggregate", b -> stream(b, "a").join(
                stream(b, "b").groupByKey().aggregate(() -> "", StreamsOracle::add, store("agg")), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("tumbling", b -> stream(b, "a").groupByKey().windowedBy(tumbling())
                .aggregate(() -> "", StreamsOracle::add, windowStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("tumbling_count", b -> stream(b, "a").groupByKey().windowedBy(tumbling())
                .count().toStream((key, value) -> windowed(key)).mapValues(n -> n.toString()).to("out"));
        TOPOLOGIES.put("hopping", b -> stream(b, "a").groupByKey().windowedBy(hopping())
                .aggregate(() -> "", StreamsOracle::add, windowStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("hopping_reduce", b -> stream(b, "a").groupByKey().windowedBy(hopping())
                .reduce((one, other) -> one + other).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("tumbling_regrouped", b -> stream(b, "a").groupByKey().windowedBy(tumbling())
                .reduce((one, other) -> other)
                .groupBy((key, value) -> KeyValue.pair(group(value), value))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("tumbling_final", b -> stream(b, "a").groupByKey().windowedBy(tumbling())
                .emitStrategy(EmitStrategy.onWindowClose())
                .aggregate(() -> "", StreamsOracle::add, longStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("hopping_final", b -> stream(b, "a").groupByKey().windowedBy(hopping())
                .emitStrategy(EmitStrategy.onWindowClose())
                .aggregate(() -> "", StreamsOracle::add, longStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("session", b -> stream(b, "a").groupByKey().windowedBy(session())
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::merge, sessionStore("s"))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("session_count", b -> stream(b, "a").groupByKey().windowedBy(session())
                .count().toStream((key, value) -> windowed(key)).mapValues(n -> n == null ? null : n.toString()).to("out"));
        TOPOLOGIES.put("session_final", b -> stream(b, "a").groupByKey().windowedBy(session())
                .emitStrategy(EmitStrategy.onWindowClose())
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::merge, sessionStore("s"))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("join_streams", b -> stream(b, "a").join(stream(b, "b"), StreamsOracle::pair, joinWindows()).to("out"));
        TOPOLOGIES.put("left_join_streams", b -> stream(b, "a").leftJoin(stream(b, "b"), StreamsOracle::pair, joinWindows()).to("out"));
        TOPOLOGIES.put("outer_join_streams", b -> stream(b, "a").outerJoin(stream(b, "b"), StreamsOracle::pair, joinWindows()).to("out"));
        TOPOLOGIES.put("outer_join_streams_no_grace", b -> stream(b, "a").outerJoin(stream(b, "b"), StreamsOracle::pair,
                JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(4))).to("out"));
        TOPOLOGIES.put("outer_join_streams_back", b -> stream(b, "a").outerJoin(stream(b, "b"), StreamsOracle::pair,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(3)).after(Duration.ofMillis(2))).to("out"));
        TOPOLOGIES.put("join_streams_at_once", b -> stream(b, "a").join(stream(b, "b"), StreamsOracle::pair, joinWindowsAtOnce()).to("out"));
        TOPOLOGIES.put("left_join_streams_at_once", b -> stream(b, "a").leftJoin(stream(b, "b"), StreamsOracle::pair, joinWindowsAtOnce()).to("out"));
        TOPOLOGIES.put("outer_join_streams_at_once", b -> stream(b, "a").outerJoin(stream(b, "b"), StreamsOracle::pair, joinWindowsAtOnce()).to("out"));
        TOPOLOGIES.put("outer_join_streams_of_one_topic", b -> stream(b, "a").outerJoin(stream(b, "a"), StreamsOracle::pair, joinWindows()).to("out"));
        TOPOLOGIES.put("merge_streams_of_one_topic", b -> stream(b, "a").mapValues(value -> value + "1")
                .merge(stream(b, "a").mapValues(value -> value + "2")).to("out"));
        TOPOLOGIES.put("rekeyed_join_streams", b -> stream(b, "a").selectKey((key, value) -> group(value))
                .leftJoin(stream(b, "b").selectKey((key, value) -> group(value)), StreamsOracle::pair, joinWindows()).to("out"));
        TOPOLOGIES.put("sliding", b -> stream(b, "a").groupByKey()
                .windowedBy(sliding())
                .aggregate(() -> "", StreamsOracle::add, windowStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("sliding_no_grace", b -> stream(b, "a").groupByKey()
                .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(25)))
                .reduce((one, other) -> one + other).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("sliding_final", b -> stream(b, "a").groupByKey().windowedBy(sliding())
                .emitStrategy(EmitStrategy.onWindowClose())
                .aggregate(() -> "", StreamsOracle::add, longStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("sliding_final_no_grace", b -> stream(b, "a").groupByKey()
                .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(25)))
                .emitStrategy(EmitStrategy.onWindowClose())
                .reduce((one, other) -> one + other, longStore("w")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("to_table", b -> stream(b, "a").toTable().toStream().to("out"));
        TOPOLOGIES.put("to_table_regrouped", b -> regrouped(stream(b, "a").selectKey((key, value) -> group(value)).toTable())
                .count().toStream().mapValues(n -> n.toString()).to("out"));
        TOPOLOGIES.put("cogroup", b -> stream(b, "a").groupByKey().cogroup(StreamsOracle::add)
                .cogroup(stream(b, "b").groupBy((key, value) -> value), (key, value, agg) -> agg + "-" + value)
                .aggregate(() -> "", store("agg")).toStream().to("out"));
        TOPOLOGIES.put("cogroup_tumbling", b -> cogrouped(b).windowedBy(tumbling()).aggregate(() -> "", windowStore("agg"))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("cogroup_hopping", b -> cogrouped(b).windowedBy(hopping()).aggregate(() -> "", windowStore("agg"))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("cogroup_sliding", b -> cogrouped(b)
                .windowedBy(sliding())
                .aggregate(() -> "", windowStore("agg")).toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("cogroup_session", b -> cogrouped(b).windowedBy(session())
                .aggregate(() -> "", StreamsOracle::merge, sessionStore("agg"))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("cogroup_tumbling_closed", b -> closed(
                cogrouped(b).windowedBy(tumbling()).aggregate(() -> "", windowStore("agg"))));
        TOPOLOGIES.put("cogroup_hopping_closed", b -> closed(
                cogrouped(b).windowedBy(hopping()).aggregate(() -> "", windowStore("agg"))));
        TOPOLOGIES.put("cogroup_sliding_closed", b -> closed(
                cogrouped(b).windowedBy(sliding()).aggregate(() -> "", windowStore("agg"))));
        TOPOLOGIES.put("cogroup_session_closed", b -> closed(
                cogrouped(b).windowedBy(session()).aggregate(() -> "", StreamsOracle::merge, sessionStore("agg"))));
        TOPOLOGIES.put("foreign_key_join", b -> table(b, "t")
                .join(table(b, "u"), StreamsOracle::referred, StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("left_foreign_key_join", b -> table(b, "t")
                .leftJoin(table(b, "u"), StreamsOracle::referred, StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("foreign_key_join_named", b -> table(b, "t")
                .join(table(b, "u"), StreamsOracle::referred, StreamsOracle::pair, store("fk")).toStream().to("out"));
        TOPOLOGIES.put("foreign_key_join_of_filtered", b -> table(b, "t").filter(StreamsOracle::small)
                .leftJoin(table(b, "u").filter(StreamsOracle::small), StreamsOracle::referred, StreamsOracle::pair)
                .toStream().to("out"));
        TOPOLOGIES.put("aggregate_of_foreign_key_join", b -> table(b, "t")
                .leftJoin(table(b, "u"), StreamsOracle::referred, StreamsOracle::pair)
                .groupBy((key, value) -> KeyValue.pair(value.substring(value.length() - 1), value))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("join_of_foreign_key_join", b -> table(b, "t")
                .join(table(b, "u"), StreamsOracle::referred, StreamsOracle::pair)
                .outerJoin(table(b, "v"), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("foreign_key_join_with_itself", b -> {
            KTable<String, String> t = table(b, "t");
            t.leftJoin(t, StreamsOracle::referred, StreamsOracle::pair).toStream().to("out");
        });
        TOPOLOGIES.put("foreign_key_joins_with_one_table", b -> {
            KTable<String, String> u = table(b, "u");
            table(b, "t").leftJoin(u, StreamsOracle::referred, StreamsOracle::pair)
                    .leftJoin(u, value -> referred(value.substring(0, 1)), StreamsOracle::pair).toStream().to("out");
        });
        TOPOLOGIES.put("rekeyed_join_with_own_table", b -> {
            KStream<String, String> a = stream(b, "a");
            a.selectKey((key, value) -> group(value)).leftJoin(a.toTable(), StreamsOracle::pair).to("out");
        });
        TOPOLOGIES.put("rekeyed_join_with_source_table", b -> {
            KTable<String, String> t = table(b, "t");
            t.toStream().filter((key, value) -> value != null).selectKey((key, value) -> referred(value))
                    .leftJoin(t, StreamsOracle::pair).to("out");
        });
        TOPOLOGIES.put("join_again_after_aggregate", b -> {
            KTable<String, String> t = table(b, "t");
            stream(b, "a").join(t, StreamsOracle::pair)
                    .groupBy((key, value) -> "k" + value.substring(value.length() - 1)).reduce((one, other) -> other)
                    .toStream().leftJoin(t, StreamsOracle::pair).to("out");
        });
        TOPOLOGIES.put("tables_join_with_own_aggregate", b -> {
            KTable<String, String> t = table(b, "t");
            t.leftJoin(t.groupBy((key, value) -> KeyValue.pair(String.valueOf(referred(value)), value))
                    .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")), StreamsOracle::pair)
                    .toStream().to("out");
        });
        TOPOLOGIES.put("join_with_own_aggregate", b -> {
            KStream<String, String> a = stream(b, "a");
            a.leftJoin(a.groupBy((key, value) -> group(value)).aggregate(() -> "", StreamsOracle::add, store("agg")),
                    StreamsOracle::pair).to("out");
        });
        TOPOLOGIES.put("merge_with_rekeyed", b -> {
            KStream<String, String> a = stream(b, "a");
            a.merge(a.selectKey((key, value) -> group(value)).repartition()).groupByKey()
                    .aggregate(() -> "", StreamsOracle::add, store("agg")).toStream().to("out");
        });
        TOPOLOGIES.put("join_with_rekeyed", b -> {
            KStream<String, String> a = stream(b, "a");
            a.outerJoin(a.selectKey((key, value) -> value == null ? null : referred(value)), StreamsOracle::pair,
                    joinWindows()).to("out");
        });
        TOPOLOGIES.put("cogroup_with_rekeyed", b -> {
            KStream<String, String> a = stream(b, "a");
            a.groupByKey().cogroup(StreamsOracle::add)
                    .cogroup(a.selectKey((key, value) -> group(value)).repartition().groupByKey(), StreamsOracle::add)
                    .aggregate(() -> "", store("agg")).toStream().to("out");
        });
        TOPOLOGIES.put("join_global_table", b -> stream(b, "a").join(b.<String, String>globalTable("t"),
                (key, value) -> value == null ? null : referred(value), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("left_join_global_table", b -> stream(b, "a").leftJoin(b.<String, String>globalTable("t"),
                (key, value) -> value == null ? null : referred(value), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("global_table_twice", b -> {
            GlobalKTable<String, String> table = b.globalTable("t");
            stream(b, "a").join(table, (key, value) -> key, StreamsOracle::pair)
                    .groupBy((key, value) -> value.substring(value.length() - 1)).reduce((one, other) -> other).toStream()
                    .leftJoin(table, (key, value) -> referred(value.substring(0, 1)), StreamsOracle::pair).to("out");
        });
        TOPOLOGIES.put("processor_stream_time", b -> withSums(b).process(
                () -> new Sums(PunctuationType.STREAM_TIME, 10), "sums").to("out"));
        TOPOLOGIES.put("processor_wall_clock", b -> withSums(b).process(
                () -> new Sums(PunctuationType.WALL_CLOCK_TIME, 7), "sums").to("out"));
        TOPOLOGIES.put("processor_of_values", b -> withSums(b).process(
                () -> new Sums(PunctuationType.STREAM_TIME, 25), "sums").repartition().groupByKey()
                .reduce((one, other) -> one + other).toStream().to("out"));
        TOPOLOGIES.put("processor_with_table", b -> {
            b.<String, String>table("t", store("t")).toStream().to("ignored");
            stream(b, "a").process(LookUp::new, "t").to("out");
        });
        TOPOLOGIES.put("versioned_table", b -> versioned(b, "t", 30).toStream().to("out"));
        TOPOLOGIES.put("join_versioned_table", b -> stream(b, "a").join(versioned(b, "t", 30), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("left_join_versioned_table", b -> stream(b, "a")
                .leftJoin(versioned(b, "t", 12), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("join_versioned_filter", b -> stream(b, "a")
                .leftJoin(versioned(b, "t", 30).filter(StreamsOracle::small), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("join_versioned_table_grace", b -> stream(b, "a").join(versioned(b, "t", 30), StreamsOracle::pair,
                Joined.<String, String, String>with(Serdes.String(), Serdes.String(), Serdes.String())
                        .withGracePeriod(Duration.ofMillis(10))).to("out"));
        TOPOLOGIES.put("versioned_table_aggregate", b -> regrouped(versioned(b, "t", 30))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("join_versioned_tables", b -> versioned(b, "t", 30)
                .outerJoin(versioned(b, "u", 30), StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("foreign_key_join_versioned", b -> versioned(b, "t", 30)
                .join(versioned(b, "u", 30), StreamsOracle::referred, StreamsOracle::pair).toStream().to("out"));
        TOPOLOGIES.put("suppress_windows", b -> stream(b, "a").groupByKey().windowedBy(tumbling())
                .aggregate(() -> "", StreamsOracle::add, windowStore("w"))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("suppress_sessions", b -> stream(b, "a").groupByKey().windowedBy(session())
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::merge, sessionStore("s"))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream((key, value) -> windowed(key)).to("out"));
        TOPOLOGIES.put("suppress_time", b -> table(b, "t")
                .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(12), Suppressed.BufferConfig.unbounded()))
                .toStream().to("out"));
        TOPOLOGIES.put("suppress_keys", b -> table(b, "t")
                .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(50), Suppressed.BufferConfig.maxRecords(2)))
                .toStream().to("out"));
        TOPOLOGIES.put("suppress_regrouped", b -> regrouped(table(b, "t")
                .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(12), Suppressed.BufferConfig.unbounded())))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
        TOPOLOGIES.put("session_regrouped", b -> stream(b, "a").groupByKey().windowedBy(session())
                .reduce((one, other) -> other)
                .groupBy((key, value) -> KeyValue.pair(group(value), value))
                .aggregate(() -> "", StreamsOracle::add, StreamsOracle::subtract, store("agg")).toStream().to("out"));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            run(line.substring("RUN ".length()), in, out, args[0]);
        }
    }

    static void run(String name, BufferedReader in, PrintStream out, String directory) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        if (name.startsWith("@")) {
            RandomTopology.on(builder, name.substring(1));
        } else {
            TOPOLOGIES.get(name).on(builder);
        }
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), options(directory), Instant.EPOCH)) {
            Map<String, TestInputTopic<String, String>> topics = new HashMap<>();
            StringBuilder answer = new StringBuilder();
            for (String line = in.readLine(); !line.equals("END"); line = in.readLine()) {
                String[] parts = line.split("\t");
                topics.computeIfAbsent(parts[0], topic ->
                                driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()))
                        .pipeInput(new TestRecord<>(orNull(parts[1]), orNull(parts[2]), headers(parts[4]),
                                Long.parseLong(parts[3])));
                driver.advanceWallClockTime(Duration.ofMillis(1));
            }
            List<TestRecord<String, String>> records = driver
                    .createOutputTopic("out", new StringDeserializer(), new StringDeserializer()).readRecordsToList();
            for (TestRecord<String, String> record : records) {
                answer.append("out\t").append(shown(record.key())).append('\t').append(shown(record.value()))
                        .append('\t').append(record.timestamp()).append('\t').append(header(record))
                        .append('\n');
            }
            out.print(answer);
            out.println("END");
        }
    }

    static Headers headers(String text) {
        RecordHeaders headers = new RecordHeaders();
        return text.equals("\\N") ? headers : headers.add("h", text.getBytes(StandardCharsets.UTF_8));
    }

    static String header(TestRecord<String, String> record) {
        Header header = record.headers().lastHeader("h");
        return header == null ? "\\N" : new String(header.value(), StandardCharsets.UTF_8);
    }

    static String orNull(String text) {
        return text.equals("\\N") ? null : text;
    }

    static String shown(String text) {
        return text == null ? "\\N" : text;
    }

    static Properties options(String directory) {
        Properties options = new Properties();
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        options.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        options.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        // Every change is sent, and closed windows are looked for at each record.
        options.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        options.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        options.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        return options;
    }
}
