package io.millstream.kernel.sink;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Writes in transactions, step by step, as its lines say; prints for each what came of it. Arguments: bootstrap
 * servers, topic, marker topic, prefix of transactional ids, and perhaps transaction.timeout.ms. A line: what to do,
 * the name of a sender, and for {@code open} the epoch, the batch, and the sink partition, 0 if it is not there, for
 * {@code send} the value; or what to do as a run, and its epoch; or {@code marker} and the sink partition.
 */
public final class TransactionsMain {
    private final Map<String, TransactionSender> senders = new HashMap<>();
    private final String[] arguments;
    private Exception failure;

    private TransactionsMain(String[] arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] arguments) throws IOException {
        TransactionsMain main = new TransactionsMain(arguments);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String came;
            try {
                came = main.done(line.split(" ", -1));
            } catch (RuntimeException error) {
                came = error.getClass().getSimpleName() + ": " + error.getMessage();
            }
            System.out.println(line + " -> " + came);
            System.out.flush();
        }
        System.exit(0);
    }

    private String done(String[] words) {
        TransactionSender sender = senders.get(words.length < 2 ? "" : words[1]);
        switch (words[0]) {
            case "open" -> {
                int part = words.length < 5 ? 0 : Integer.parseInt(words[4]);
                sender = TransactionSender.open(options(Long.parseLong(words[2])), part, Long.parseLong(words[3]));
                senders.put(words[1], sender);
                return sender.isWritten() ? "written" : "to be written";
            }
            case "claim" -> {
                Map<String, String> texts = new HashMap<>(texts(Long.parseLong(words[1])));
                texts.merge("run", words.length < 4 ? "" : words[3], String::concat);
                Run.claim(texts, words.length < 3 ? 0 : Integer.parseInt(words[2]));
            }
            case "provide" -> Run.provide(options(Long.parseLong(words[1])), Integer.parseInt(words[2]));
            case "written" -> {
                return Long.toString(Run.written(texts(Long.parseLong(words[1])), words[2]));
            }
            case "marker" -> {
                Map<String, String> texts = new HashMap<>(texts(0));
                texts.put("kafka.max.block.ms", "500");
                String id = arguments[3] + "-" + words[1];
                return Long.toString(Marker.read(Options.of(texts), List.of(id), true).get(id).next());
            }
            case "send" -> sender.send(
                    new ProducerRecord<>(arguments[1], null, words[2].getBytes(StandardCharsets.US_ASCII)),
                    (metadata, error) -> failure = error);
            case "flush" -> {
                sender.flush();
                return failure == null ? "ok" : Verdict.of(failure).name();
            }
            case "outlast" -> {
                for (failure = null; failure == null; sender.flush()) {
                    sender.send(
                            new ProducerRecord<>(arguments[1], new byte[0]), (metadata, error) -> failure = error);
                }
                return sender.lost(failure).getClass().getSimpleName();
            }
            case "mark" -> sender.mark();
            case "restart" -> sender.restart();
            case "commit" -> sender.commit();
            case "close" -> sender.close(true);
            case "give-up" -> sender.close(false);
            case "kill" -> Runtime.getRuntime().halt(0);
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "ok";
    }

    private Options options(long epoch) {
        return Options.of(texts(epoch));
    }

    private Map<String, String> texts(long epoch) {
        return Map.of(
                "kafka.bootstrap.servers", arguments[0],
                "kafka.max.block.ms", "10000",
                "kafka.transaction.timeout.ms", arguments.length < 5 ? "60000" : arguments[4],
                "marker.topic", arguments[2],
                "transactional.prefix", arguments[3],
                "epoch", Long.toString(epoch),
                "query", "query-1",
                "run", "run-" + epoch);
    }
}
