import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * Avro's Java library as an oracle. Each line of the input is an object with `reader`, `writer` and `references` (texts of
 * schemas, dependencies first), each line of the output an object with their canonical texts or errors, and with the
 * incompatibilities.
 */
public class AvroOracle {
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
        Schema reader = parse(question, "reader", answer);
        Schema writer = parse(question, "writer", answer);
        if (reader != null && writer != null) {
            compare(reader, writer, answer);
        }
        return answer;
    }

    private static Schema parse(JsonNode question, String role, ObjectNode answer) {
        try {
            Schema.Parser parser = new Schema.Parser();
            List<Schema> references = new ArrayList<>();
            for (JsonNode reference : question.path("references")) {
                references.add(parser.parse(reference.textValue()));
            }
            Schema schema = parser.parse(question.path(role).textValue());
            answer.put(role, schema.toString(references, false));
            answer.put(role + "Resolved", schema.toString());
            return schema;
        } catch (RuntimeException | StackOverflowError error) {
            answer.put(role + "Error", String.valueOf(error.getMessage()));
            return null;
        }
    }

    private static void compare(Schema reader, Schema writer, ObjectNode answer) {
        ArrayNode found = answer.putArray("incompatibilities");
        try {
            SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult().getIncompatibilities()
                .forEach(reason -> found.addArray()
                    .add(reason.getType().toString()).add(reason.getLocation()).add(reason.getMessage()));
        } catch (RuntimeException error) {
            answer.put("exception", String.valueOf(error.getMessage()));
        }
    }
}
