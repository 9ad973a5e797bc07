package io.millstream.kernel;

import java.util.Scanner;
import org.apache.spark.SecurityManager;
import org.apache.spark.SecurityManager$;
import org.apache.spark.SparkConf;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.netty.SparkTransportConf;
import org.apache.spark.network.server.NoOpRpcHandler;
import org.apache.spark.network.shuffle.protocol.OpenBlocks;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.RpcEnv$;
import org.apache.spark.scheduler.local.StopExecutor$;
import scala.Option;
import scala.reflect.ClassTag$;

/**
 * A program of another user of the machine, who has Spark's jars and knows the ports of a Spark in local mode: what
 * each of its requests comes to. In, a line each: what it asks for, the port, and the secret, `-` if it knows none.
 */
public final class StrangerMain {
    private static final String HERE = "127.0.0.1";

    public static void main(String[] arguments) {
        try (Scanner lines = new Scanner(System.in)) {
            while (lines.hasNext()) {
                String asked = lines.next();
                int port = lines.nextInt();
                String secret = lines.next();
                SparkConf settings = new SparkConf(false);
                settings.set("spark.rpc.askTimeout", "10s").set("spark.rpc.lookupTimeout", "10s");
                if (!secret.equals("-")) {
                    settings.set("spark.authenticate", "true").set("spark.authenticate.secret", secret);
                }
                System.out.println(asked + " " + answer(settings, asked, port));
            }
        }
        System.exit(0); // Spark's threads would keep it
    }

    private static String answer(SparkConf settings, String asked, int port) {
        try {
            if (asked.startsWith("broadcast_")) {
                return "gave " + bytesOf(settings, asked, port);
            }
            var noKey = SecurityManager$.MODULE$.$lessinit$greater$default$3();
            SecurityManager manager = new SecurityManager(settings, Option.empty(), noKey);
            RpcEnv env = RpcEnv$.MODULE$.create("stranger", HERE, HERE, 0, settings, manager, 1, true);
            var endpoint = env.setupEndpointRef(new RpcAddress(HERE, port), "LocalSchedulerBackendEndpoint");
            if (asked.equals("stop")) {
                return "said " + endpoint.askSync(StopExecutor$.MODULE$, ClassTag$.MODULE$.Any());
            }
            return "answered";
        } catch (Exception refused) {
            return "refused " + refused.getClass().getSimpleName();
        }
    }

    private static int bytesOf(SparkConf settings, String block, int port) throws Exception {
        var transport = SparkTransportConf.fromSparkConf(settings, "shuffle", 1, Option.empty(), Option.empty());
        try (TransportContext context = new TransportContext(transport, new NoOpRpcHandler());
                var clients = context.createClientFactory();
                var client = clients.createClient(HERE, port)) {
            var open = new OpenBlocks("stranger", "driver", new String[] {block});
            return client.sendRpcSync(open.toByteBuffer(), 10_000).remaining();
        }
    }

    private StrangerMain() {}
}
