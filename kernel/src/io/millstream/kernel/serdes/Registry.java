package io.millstream.kernel.serdes;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * A schema registry, queried for schemas by the ids in records. Answers are kept, because an id always means the same
 * schema. That an id is unknown is kept for ten seconds.
 */
final class Registry {
    private static final Map<String, Registry> KNOWN = new ConcurrentHashMap<>();
    private static final long UNKNOWN_FOR_MS = 10_000;
    private static final int MOST_UNKNOWN = 1000;
    private static final int MOST_REFERENCES = 100;
    /** The same as in millstream/registry/registry_client.py. */
    private static final int MOST_BYTES = 8 << 20;

    private final List<String> urls = new ArrayList<>();
    private final Map<String, String> headers = new HashMap<>();
    private final long patienceMs;
    private final long attemptMs;
    private final HttpClient client;
    private final Map<String, List<String>> schemas = new ConcurrentHashMap<>();
    private final Map<String, Long> unknown = new ConcurrentHashMap<>();

    private Registry(JsonNode given) {
        given.path("urls").forEach(url -> urls.add(url.asText()));
        given.path("headers").properties().forEach(each -> headers.put(each.getKey(), each.getValue().asText()));
        patienceMs = given.path("patience_ms").asLong();
        attemptMs = given.path("attempt_ms").asLong();
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(Duration.ofMillis(attemptMs));
        Map<String, Object> ssl = new HashMap<>();
        given.path("ssl").properties().forEach(each -> ssl.put(each.getKey(), each.getValue().asText()));
        if (!ssl.isEmpty()) {
            ssl.putIfAbsent("ssl.protocol", "TLSv1.3");
            ssl.putIfAbsent("ssl.keymanager.algorithm", javax.net.ssl.KeyManagerFactory.getDefaultAlgorithm());
            ssl.putIfAbsent("ssl.trustmanager.algorithm", javax.net.ssl.TrustManagerFactory.getDefaultAlgorithm());
            for (String file : List.of("keystore", "truststore")) {
                ssl.putIfAbsent("ssl." + file + ".type", "JKS");
                for (String secret : List.of("ssl." + file + ".password", "ssl.key.password")) {
                    if (ssl.get(secret) instanceof String text) {
                        ssl.put(secret, new org.apache.kafka.common.config.types.Password(text));
                    }
                }
            }
            try (DefaultSslEngineFactory factory = new DefaultSslEngineFactory()) {
                factory.configure(ssl);
                builder.sslContext(factory.sslContext());
            }
        }
        client = builder.build();
    }

    /** The registry with this description, shared by all its users. */
    static Registry of(JsonNode given) {
        return KNOWN.computeIfAbsent(given.toString(), each -> new Registry(given));
    }

    /**
     * The schema of an id, preceded by those that it refers to. Null if the registry has no such id.
     *
     * @throws RegistryError the registry cannot be queried, or its answer is incomplete
     */
    List<String> schema(int id) {
        return found("/schemas/ids/" + id, 0);
    }

    private List<String> found(String path, int depth) {
        List<String> known = schemas.get(path);
        if (known != null) {
            return known;
        }
        Long until = unknown.get(path);
        if (until != null && System.currentTimeMillis() < until) {
            return null;
        }
        Optional<JsonNode> said = asked(path);
        if (said.isEmpty()) {
            if (unknown.size() >= MOST_UNKNOWN) {
                unknown.clear();
            }
            unknown.put(path, System.currentTimeMillis() + UNKNOWN_FOR_MS);
            return null;
        }
        List<String> found = new ArrayList<>();
        for (JsonNode reference : said.get().path("references")) {
            String subject = java.net.URLEncoder.encode(reference.path("subject").asText(), StandardCharsets.UTF_8);
            int version = reference.path("version").asInt();
            List<String> of = found("/subjects/" + subject + "/versions/" + version, depth + 1);
            if (of == null || found.size() > MOST_REFERENCES || depth > MOST_REFERENCES) {
                return null;
            }
            of.stream().filter(text -> !found.contains(text)).forEach(found::add);
        }
        found.add(said.get().path("schema").asText());
        schemas.put(path, found);
        return found;
    }

    /** Its answer to a GET; empty if there is no such thing. */
    private Optional<JsonNode> asked(String path) {
        long deadline = System.nanoTime() + Duration.ofMillis(patienceMs).toNanos();
        String last = "it did not answer";
        Throwable cause = null;
        for (int attempt = 0; ; attempt++) {
            String url = urls.get(attempt % urls.size());
            try {
                HttpResponse<String> response = answered(url + path, deadline);
                int status = response.statusCode();
                if (status == 200) {
                    return Optional.of(Description.json(response.body()));
                }
                if (status == 404 && isOfRegistry(response.body())) {
                    return Optional.empty();
                }
                last = "it answered with status " + status;
                if (status < 500 && status != 429 && status != 408) {
                    throw new RegistryError(message(url, last + (status == 401 || status == 403
                            ? ": check user and password (basic.auth.user.info)" : "")), null);
                }
            } catch (IOException | IllegalArgumentException error) {
                last = error.getClass().getSimpleName() + (error.getMessage() == null ? "" : ": " + error.getMessage());
                cause = error;
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new RegistryError(message(url, "the task was ended"), error);
            }
            long left = Duration.ofNanos(deadline - System.nanoTime()).toMillis();
            long pause = ThreadLocalRandom.current().nextLong(50, 100L << Math.min(attempt, 4));
            if (left <= pause) {
                throw new RegistryError(message(url, last + "; tried for " + patienceMs + " ms"), cause);
            }
            try {
                Thread.sleep(pause);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new RegistryError(message(url, "the task was ended"), error);
            }
        }
    }

    /** The whole answer, in time. (A request's own timeout ends when its body begins.) */
    private HttpResponse<String> answered(String url, long deadline) throws IOException, InterruptedException {
        long left = Math.max(1, Duration.ofNanos(deadline - System.nanoTime()).toMillis());
        HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(url));
        headers.forEach(builder::header);
        CompletableFuture<HttpResponse<String>> answer = client.sendAsync(
                builder.GET().build(), head -> limited());
        try {
            return answer.get(Math.min(attemptMs, left), TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            throw new IOException("no complete answer within " + Math.min(attemptMs, left) + " ms", error);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof IOException io
                    ? io : new IOException(error.getCause().getMessage(), error.getCause());
        } finally {
            answer.cancel(true); // has no effect once the answer has arrived
        }
    }

    /** The text of an answer, which must not fill the memory: something that is no registry may answer here. */
    private static HttpResponse.BodySubscriber<String> limited() {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        return HttpResponse.BodySubscribers.mapping(
                HttpResponse.BodySubscribers.ofByteArrayConsumer(part -> {
                    body.writeBytes(part.orElse(new byte[0]));
                    if (body.size() > MOST_BYTES) {
                        throw new IllegalArgumentException("its answer has more than " + (MOST_BYTES >> 20) + " MiB");
                    }
                }),
                all -> body.toString(StandardCharsets.UTF_8));
    }

    /** Whether a 404 is a registry's, which has an error code. Otherwise, the address is not a registry's. */
    @SuppressWarnings("unused")
    private static boolean isOfRegistry(String body) {
        try {
            return Description.json(body).path("error_code").asInt() / 100 == 404;
        } catch (IllegalArgumentException error) {
            return false;
        }
    }

    private static String message(String url, String what) {
        return "the schema registry at " + url + " cannot be queried: " + what;
    }
}
