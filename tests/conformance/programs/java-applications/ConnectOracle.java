import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.apache.kafka.connect.runtime.isolation.PluginDesc;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Kafka Connect's converters and transformations as an oracle. Each line of the input is an object, and so is each line
 * of the output, which has `error` instead if there was one.
 *
 * With `header` (a text): the `schema` type and name that `Values` finds, and the `printed` value.
 * With `definitions` (`source` or `sink`) and `config`: the options, and what is wrong with each value.
 * With `plugins`: all converters, header converters, transformations and predicates.
 * With `converter` (a class), `config`, `isKey` and `data` (base64 or null): `data` is what the converter makes of what it
 * has read. With `transformation` (a class), `config`, `schemas` (whether the JSON has envelopes), `topic`, `partition`,
 * `offset`, `timestamp`, `key` and `value` (base64 or null): the same members of the changed record, and `headers`, or
 * `dropped`.
 */
public class ConnectOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            if (question.has("header")) {
                return header(question.get("header").textValue());
            }
            if (question.has("plugins")) {
                return listed();
            }
            if (question.has("definitions")) {
                return defined(question);
            }
            if (question.has("transformation")) {
                return transformed(question);
            }
            Converter converter = (Converter) Class.forName(question.get("converter").textValue())
                .getDeclaredConstructor().newInstance();
            Map<String, String> config = config(question);
            converter.configure(config, question.get("isKey").booleanValue());
            SchemaAndValue read = converter.toConnectData("topic", data(question, "data"));
            answer.put("data", text(converter.fromConnectData("topic", read.schema(), read.value())));
        } catch (Exception | StackOverflowError error) {
            answer.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
        return answer;
    }

    private static ObjectNode header(String text) {
        SchemaAndValue found = Values.parseString(text);
        ObjectNode answer = JSON.createObjectNode();
        if (found != null && found.schema() != null) {
            answer.put("type", found.schema().type().getName()).put("name", found.schema().name());
            answer.put("printed", Values.convertToString(found.schema(), found.value()));
            if (found.schema().type() == Schema.Type.ARRAY || found.schema().type() == Schema.Type.MAP) {
                Schema items = found.schema().valueSchema();
                answer.put("items", items == null ? null : items.type().getName());
            }
        }
        return answer;
    }

    private static ObjectNode defined(JsonNode question) {
        ConfigDef definitions = question.get("definitions").textValue().equals("sink")
            ? SinkConnectorConfig.configDef()
            : SourceConnectorConfig.configDef();
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode options = answer.putArray("options");
        for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
            options.addObject().put("name", key.name).put("type", key.type.toString())
                .put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "REQUIRED")
                .put("importance", key.importance.toString()).put("group", key.group).put("order", key.orderInGroup)
                .put("width", key.width.toString()).put("displayName", key.displayName);
        }
        ObjectNode errors = answer.putObject("errors");
        for (ConfigValue value : definitions.validate(config(question))) {
            value.errorMessages().forEach(errors.withArray(value.name())::add);
        }
        return answer;
    }

    private static ObjectNode listed() {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode found = answer.putArray("plugins");
        Plugins all = new Plugins(Map.of("plugin.discovery", "service_load"));
        for (Set<? extends PluginDesc<?>> one : List.of(all.converters(), all.headerConverters(), all.transformations(),
            all.predicates())) {
            for (PluginDesc<?> plugin : one) {
                found.addObject().put("class", plugin.className()).put("type", plugin.typeName());
            }
        }
        return answer;
    }

    private static ObjectNode transformed(JsonNode question) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", question.get("schemas").asText()), false);
        @SuppressWarnings("unchecked")
        Transformation<SinkRecord> transformation = (Transformation<SinkRecord>) Class
            .forName(question.get("transformation").textValue()).getDeclaredConstructor().newInstance();
        transformation.configure(config(question));
        String topic = question.get("topic").textValue();
        SchemaAndValue key = converter.toConnectData(topic, data(question, "key"));
        SchemaAndValue value = converter.toConnectData(topic, data(question, "value"));
        Long timestamp = question.get("timestamp").isNull() ? null : question.get("timestamp").longValue();
        SinkRecord record = transformation.apply(new SinkRecord(topic, question.get("partition").intValue(),
            key.schema(), key.value(), value.schema(), value.value(), question.get("offset").longValue(), timestamp,
            TimestampType.CREATE_TIME));
        ObjectNode answer = JSON.createObjectNode();
        if (record == null) {
            return answer.put("dropped", true);
        }
        answer.put("topic", record.topic());
        answer.put("partition", record.kafkaPartition());
        answer.put("timestamp", record.timestamp());
        answer.put("key", text(converter.fromConnectData(topic, record.keySchema(), record.key())));
        answer.put("value", text(converter.fromConnectData(topic, record.valueSchema(), record.value())));
        ArrayNode headers = answer.putArray("headers");
        for (Header header : record.headers()) {
            byte[] written = converter.fromConnectHeader(topic, header.key(), header.schema(), header.value());
            headers.addArray().add(header.key()).add(text(written));
        }
        return answer;
    }

    private static Map<String, String> config(JsonNode question) {
        Map<String, String> config = new HashMap<>();
        question.get("config").fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().textValue()));
        return config;
    }

    private static byte[] data(JsonNode question, String name) {
        JsonNode given = question.get(name);
        return given.isNull() ? null : Base64.getDecoder().decode(given.textValue());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
