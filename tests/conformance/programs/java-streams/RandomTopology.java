import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Builds the topology of a text such as "stream a;table t;join-table 0 1 left": each step makes a stream or a table of
 * earlier ones, by their numbers, and the last one is written to the topic "out". `random_topologies.py` builds the same
 * in Python.
 */
public class RandomTopology {
    static final int LONGEST = 24;

    final StreamsBuilder builder;
    final List<Object> made = new ArrayList<>();

    RandomTopology(StreamsBuilder builder) {
        this.builder = builder;
    }

    static void on(StreamsBuilder builder, String text) {
        RandomTopology topology = new RandomTopology(builder);
        for (String step : text.split(";")) {
            topology.made.add(topology.step(step.split(" ")));
        }
        Object last = topology.made.get(topology.made.size() - 1);
        (last instanceof KTable ? topology.table(last).toStream() : topology.stream(last)).to("out");
    }

    @SuppressWarnings("unchecked")
    KStream<String, String> stream(Object made) {
        return (KStream<String, String>) made;
    }

    @SuppressWarnings("unchecked")
    KTable<String, String> table(Object made) {
        return (KTable<String, String>) made;
    }

    KStream<String, String> s(String number) {
        return stream(made.get(Integer.parseInt(number)));
    }

    KTable<String, String> t(String number) {
        return table(made.get(Integer.parseInt(number)));
    }

    Object step(String[] w) {
        String store = "store" + made.size();
        switch (w[0]) {
            case "stream": return StreamsOracle.stream(builder, w[1]);
            case "table": return StreamsOracle.table(builder, w[1]);
            case "filter": return s(w[1]).filter((key, value) -> kept(value));
            case "map": return s(w[1]).mapValues(value -> value == null ? null : cut(value + "m"));
            case "double": return s(w[1]).flatMapValues(value ->
                    value == null ? List.of("null") : List.of(value, cut(value + "d")));
            case "key": return s(w[1]).selectKey((key, value) -> chosen(value));
            case "merge": return s(w[1]).merge(s(w[2]));
            case "to-table": return s(w[1]).toTable();
            case "group": return s(w[1]).groupByKey().aggregate(() -> "", RandomTopology::add, StreamsOracle.store(store));
            case "group-by": return s(w[1]).groupBy((key, value) -> chosen(value))
                    .aggregate(() -> "", RandomTopology::add, StreamsOracle.store(store));
            case "latest": return s(w[1]).groupByKey().reduce((one, other) -> other);
            case "tumbling": return named(s(w[1]).groupByKey().windowedBy(StreamsOracle.tumbling())
                    .aggregate(() -> "", RandomTopology::add, StreamsOracle.windowStore(store)));
            case "hopping": return named(s(w[1]).groupByKey().windowedBy(StreamsOracle.hopping())
                    .aggregate(() -> "", RandomTopology::add, StreamsOracle.windowStore(store)));
            case "sliding": return named(s(w[1]).groupByKey().windowedBy(StreamsOracle.sliding())
                    .aggregate(() -> "", RandomTopology::add, StreamsOracle.windowStore(store)));
            case "session": return named(s(w[1]).groupByKey().windowedBy(StreamsOracle.session())
                    .aggregate(() -> "", RandomTopology::add, (key, one, other) -> cut(one + "+" + other),
                            StreamsOracle.sessionStore(store)));
            case "join-table": return w[3].equals("left") ? s(w[1]).leftJoin(t(w[2]), RandomTopology::pair)
                    : s(w[1]).join(t(w[2]), RandomTopology::pair);
            case "join-stream": return w[3].equals("outer")
                    ? s(w[1]).outerJoin(s(w[2]), RandomTopology::pair, StreamsOracle.joinWindows())
                    : w[3].equals("left") ? s(w[1]).leftJoin(s(w[2]), RandomTopology::pair, StreamsOracle.joinWindows())
                    : s(w[1]).join(s(w[2]), RandomTopology::pair, StreamsOracle.joinWindows());
            case "to-stream": return t(w[1]).toStream();
            case "filter-table": return t(w[1]).filter((key, value) -> kept(value));
            case "map-table": return t(w[1]).mapValues(value -> cut(value + "t"));
            case "regroup": return t(w[1]).groupBy((key, value) -> KeyValue.pair(chosen(value), value))
                    .aggregate(() -> "", RandomTopology::addDigit, RandomTopology::removeDigit, StreamsOracle.store(store));
            case "join-tables": return w[3].equals("outer") ? t(w[1]).outerJoin(t(w[2]), RandomTopology::pair)
                    : w[3].equals("left") ? t(w[1]).leftJoin(t(w[2]), RandomTopology::pair)
                    : t(w[1]).join(t(w[2]), RandomTopology::pair);
            case "join-foreign": return w[3].equals("left")
                    ? t(w[1]).leftJoin(t(w[2]), RandomTopology::chosen, RandomTopology::pair)
                    : t(w[1]).join(t(w[2]), RandomTopology::chosen, RandomTopology::pair);
            default: throw new IllegalArgumentException(w[0]);
        }
    }

    static KStream<String, String> named(KTable<Windowed<String>, String> table) {
        return table.toStream((key, value) -> StreamsOracle.windowed(key));
    }

    static String cut(String text) {
        return text.length() > LONGEST ? text.substring(text.length() - LONGEST) : text;
    }

    static String add(String key, String value, String aggregate) {
        return cut(aggregate + value);
    }

    /** The digits of values, in no order: the rows of a group may come in another one. */
    static String addDigit(String key, String value, String aggregate) {
        char[] digits = (aggregate + sum(value) % 10).toCharArray();
        Arrays.sort(digits);
        return new String(digits);
    }

    static String removeDigit(String key, String value, String aggregate) {
        String left = aggregate.replaceFirst(String.valueOf(sum(value) % 10), "");
        return left.isEmpty() ? null : left;
    }

    static String pair(String left, String right) {
        return cut(left + "|" + right);
    }

    static int sum(String value) {
        int sum = 0;
        for (int at = 0; at < value.length(); at++) {
            sum += value.charAt(at);
        }
        return sum;
    }

    static boolean kept(String value) {
        return value == null || sum(value) % 4 != 0;
    }

    /** Null for some values, so that groups and keys can be missing. */
    static String chosen(String value) {
        return value == null || sum(value) % 5 == 0 ? null : "k" + (sum(value) % 3 + 1);
    }
}
