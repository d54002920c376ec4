import io.vertx.core.Future;
import io.vertx.core.Promise;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientOptions;
import io.vertx.core.http.HttpClientRequest;
import io.vertx.core.http.HttpClientResponse;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpVersion;
import io.vertx.core.json.JsonArray;
import io.vertx.core.json.JsonObject;
import io.vertx.core.parsetools.RecordParser;
import java.net.URI;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * What ksqlDB's Java client does, with the same HTTP client and its options: everything on one connection of HTTP/2.
 *
 * <p>Arguments: a URL and the name of a new stream, or a URL with https, a file of trusted certificates and a path. Each line
 * of the output is an object with what one call of that client's API got.
 */
public class KsqlClient {
    private static final long LIMIT_S = 120;
    private static final String END = "(end)";

    private final HttpClient client;

    KsqlClient(Vertx vertx, URI url, String trusted) {
        HttpClientOptions options = new HttpClientOptions()
            .setSsl(trusted != null)
            .setUseAlpn(trusted != null)
            .setProtocolVersion(HttpVersion.HTTP_2)
            .setHttp2ClearTextUpgrade(false)
            .setDefaultHost(url.getHost())
            .setDefaultPort(url.getPort());
        if (trusted != null) {
            options.setPemTrustOptions(new io.vertx.core.net.PemTrustOptions().addCertPath(trusted));
        }
        client = vertx.createHttpClient(options);
    }

    public static void main(String[] arguments) throws Exception {
        Vertx vertx = Vertx.vertx();
        URI url = URI.create(arguments[0]);
        boolean isSecure = url.getScheme().equals("https");
        KsqlClient client = new KsqlClient(vertx, url, isSecure ? arguments[1] : null);
        if (isSecure) {
            client.tell("get", client.ask(HttpMethod.GET, arguments[2], null));
        } else {
            client.run(arguments[1]);
        }
        await(vertx.close());
    }

    private void run(String name) throws Exception {
        tell("serverInfo", ask(HttpMethod.GET, "/info", null));
        tell("executeStatement", statement("CREATE STREAM " + name + " (k STRING KEY, v INT) WITH (kafka_topic='" + name
            + "', value_format='JSON', partitions=1);"));
        tell("a statement that fails", statement("DROP STREAM nothing;"));
        streamInserts(name);
        insertInto(name);
        Answer rows = query("SELECT k, v FROM " + name + ";");
        rows.next();
        JsonArray found = new JsonArray();
        for (String line = rows.next(); !line.equals(END); line = rows.next()) {
            found.add(new JsonArray(line));
        }
        tell("executeQuery", new JsonObject().put("rows", found));
        streamQuery(name);
        // A program that ends, or a query whose reader was closed, resets its stream.
        Answer left = query("SELECT k, v FROM " + name + " EMIT CHANGES;");
        left.next();
        left.request.reset();
        tell("a query that was reset", new JsonObject().put("ends", nothingRuns()));
    }

    private boolean nothingRuns() throws Exception {
        long endsAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        while (System.nanoTime() < endsAt) {
            String metrics = ask(HttpMethod.GET, "/metrics", null).getString("body");
            if (metrics.contains("felice_sql_transient_queries{kind=\"select\"} 0")) {
                return true;
            }
            Thread.sleep(50);
        }
        return false;
    }

    private JsonObject statement(String text) throws Exception {
        JsonObject body = new JsonObject().put("ksql", text).put("streamsProperties", new JsonObject());
        return ask(HttpMethod.POST, "/ksql", body.toBuffer());
    }

    /** Rows are sent one by one, each when the one before was acknowledged, while the request stays open. */
    private void streamInserts(String name) throws Exception {
        HttpClientRequest request = await(client.request(HttpMethod.POST, "/inserts-stream"));
        Answer answer = new Answer(request);
        request.setChunked(true).write(new JsonObject().put("target", name).toBuffer().appendString("\n"));
        answer.begin();
        JsonArray acks = new JsonArray();
        for (int row = 0; row < 3; row++) {
            request.write(new JsonObject().put("K", "a").put("V", row).toBuffer().appendString("\n"));
            acks.add(new JsonObject(answer.next()));
        }
        request.end();
        tell("streamInserts", new JsonObject().put("acks", acks).put("ends", answer.next().equals(END)));
    }

    private void insertInto(String name) throws Exception {
        HttpClientRequest request = await(client.request(HttpMethod.POST, "/inserts-stream"));
        Answer answer = new Answer(request);
        request.end(new JsonObject().put("target", name).toBuffer().appendString("\n")
            .appendBuffer(new JsonObject().put("K", "b").put("V", 9).toBuffer()).appendString("\n"));
        answer.begin();
        tell("insertInto", new JsonObject().put("ack", new JsonObject(answer.next())).put("ends", answer.next().equals(END)));
    }

    private void streamQuery(String name) throws Exception {
        Answer answer = query("SELECT k, v FROM " + name + " EMIT CHANGES;");
        JsonObject about = new JsonObject(answer.next());
        JsonArray rows = new JsonArray();
        for (int row = 0; row < 4; row++) {
            rows.add(new JsonArray(answer.next()));
        }
        tell("streamQuery", about.put("rows", rows));
        JsonObject body = new JsonObject().put("queryId", about.getString("queryId"));
        JsonObject closed = ask(HttpMethod.POST, "/close-query", body.toBuffer());
        tell("terminatePushQuery", closed.put("ends", answer.next().equals(END)));
    }

    private Answer query(String text) throws Exception {
        HttpClientRequest request = await(client.request(HttpMethod.POST, "/query-stream"));
        Answer answer = new Answer(request);
        JsonObject properties = new JsonObject().put("auto.offset.reset", "earliest");
        request.end(new JsonObject().put("sql", text).put("properties", properties).toBuffer());
        return answer.begin();
    }

    private JsonObject ask(HttpMethod method, String path, Buffer body) throws Exception {
        HttpClientRequest request = await(client.request(method, path));
        Future<HttpClientResponse> answering = body == null ? request.send() : request.send(body);
        return await(answering.compose(response -> response.body().map(read -> new JsonObject()
            .put("status", response.statusCode()).put("version", response.version().name()).put("body", read.toString()))));
    }

    private void tell(String call, JsonObject got) {
        System.out.println(got.put("call", call).encode());
    }

    private static <T> T await(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(LIMIT_S, TimeUnit.SECONDS);
    }

    /** The lines of an answer as they come. */
    private static class Answer {
        final HttpClientRequest request;
        private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        private final Promise<Integer> begun = Promise.promise();

        Answer(HttpClientRequest request) {
            this.request = request;
            request.response().onFailure(begun::tryFail).onSuccess(response -> {
                response.handler(RecordParser.newDelimited("\n", line -> lines.add(line.toString())));
                response.endHandler(ended -> lines.add(END));
                response.exceptionHandler(error -> lines.add("failed: " + error));
                begun.complete(response.statusCode());
            });
        }

        Answer begin() throws Exception {
            int status = await(begun.future());
            if (status != 200) {
                throw new IllegalStateException("status " + status + ": " + next());
            }
            return this;
        }

        String next() throws Exception {
            String line = lines.poll(LIMIT_S, TimeUnit.SECONDS);
            if (line == null) {
                throw new IllegalStateException("no line came");
            }
            return line;
        }
    }
}
