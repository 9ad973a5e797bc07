package io.millstream.kernel.task;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.ThreadSafeRpcEndpoint;
import org.apache.spark.util.RpcUtils;
import scala.PartialFunction;
import scala.PartialFunction$;
import scala.reflect.ClassTag$;
import scala.runtime.BoxedUnit;

/**
 * Connects the driver with the tasks in executors. An executor says what they have done ({@link Report}), and is
 * answered what the driver wants ({@link Wishes}), which is also sent to it when that changes. Source:
 * StateStoreCoordinator.
 *
 * <p>This is Spark's own RPC: every session has it, and it is as safe as Spark's other connections. Messages are bytes,
 * because which classes Spark itself finds depends on how it was started.
 */
final class Endpoint implements ThreadSafeRpcEndpoint {
    private static final String NAME = "millstream-tasks";
    private static final String DRIVER = "driver";
    /** That of this JVM: a second Spark in it has another one. */
    private static Endpoint here;

    private final RpcEnv env;
    private RpcEndpointRef self;
    private RpcEndpointRef driver;

    private Endpoint(RpcEnv env) {
        this.env = env;
    }

    /** Whether this JVM runs tasks for a driver in another one. */
    static boolean isExecutor() {
        SparkEnv spark = SparkEnv.get();
        return spark != null && !spark.executorId().equals(DRIVER);
    }

    /** That of this JVM, which can be reached from now on. */
    static synchronized Endpoint open() {
        SparkEnv spark = SparkEnv.get();
        if (here == null || here.env != spark.rpcEnv()) {
            Endpoint made = new Endpoint(spark.rpcEnv());
            String name = NAME;
            if (isExecutor()) {
                made.driver = RpcUtils.makeDriverRef(NAME, spark.conf(), made.env);
                name += "-" + UUID.randomUUID(); // sessions may have class loaders, and so endpoints, of their own
            }
            made.self = made.env.setupEndpoint(name, made);
            here = made;
        }
        return here;
    }

    /** Where this executor is, as Spark's scheduler takes it: ExecutorCacheTaskLocation. */
    static String location() {
        var id = SparkEnv.get().blockManager().blockManagerId();
        return "executor_" + id.host() + "_" + id.executorId();
    }

    /** Tells the driver. */
    Wishes tell(Report report) {
        Object[] message = {self, bytes(report)};
        return (Wishes) object(driver.askSync(message, ClassTag$.MODULE$.<byte[]>apply(byte[].class)));
    }

    // --- messages --------------------------------------------------------------------------------------

    @Override
    public RpcEnv rpcEnv() {
        return env;
    }

    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
        return handled(message -> {
            Object[] parts = (Object[]) message;
            RpcEndpointRef executor = (RpcEndpointRef) parts[0];
            Report report = (Report) object((byte[]) parts[1]);
            Wishes wishes = Tasks.told(
                    context.senderAddress().toString(), changed -> executor.send(bytes(changed)), report);
            context.reply(bytes(wishes));
        });
    }

    @Override
    public PartialFunction<Object, BoxedUnit> receive() {
        return handled(message -> {
            Wishes wishes = (Wishes) object((byte[]) message);
            Tasks tasks = Tasks.here(wishes.run());
            if (tasks != null) {
                tasks.hear(wishes);
            }
        });
    }

    @Override
    public void onDisconnected(RpcAddress address) {
        Tasks.lost(address.toString());
    }

    private static PartialFunction<Object, BoxedUnit> handled(Consumer<Object> handler) {
        return PartialFunction$.MODULE$.fromFunction(message -> {
            handler.accept(message);
            return BoxedUnit.UNIT;
        });
    }

    private static byte[] bytes(Serializable message) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(message);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    private static Object object(byte[] message) {
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(message))) {
            return in.readObject();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (ClassNotFoundException error) {
            throw new IllegalStateException(error);
        }
    }
}
