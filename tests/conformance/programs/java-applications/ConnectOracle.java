import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.Converter;

/**
 * Kafka Connect's converters as an oracle. Each line of the input is an object with `converter` (a class), `config`,
 * `isKey` and `data` (base64 or null). Each line of the output is an object with `data`, the bytes that the converter
 * makes of what it has read, or with `error`.
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
            Converter converter = (Converter) Class.forName(question.get("converter").textValue())
                .getDeclaredConstructor().newInstance();
            Map<String, String> config = new HashMap<>();
            question.get("config").fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().textValue()));
            converter.configure(config, question.get("isKey").booleanValue());
            JsonNode given = question.get("data");
            byte[] data = given.isNull() ? null : Base64.getDecoder().decode(given.textValue());
            SchemaAndValue read = converter.toConnectData("topic", data);
            byte[] written = converter.fromConnectData("topic", read.schema(), read.value());
            answer.put("data", written == null ? null : Base64.getEncoder().encodeToString(written));
        } catch (Exception | StackOverflowError error) {
            answer.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
        return answer;
    }
}
