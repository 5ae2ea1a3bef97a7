import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Prints what Java's MirrorClient and RemoteClusterUtils say: one line `what: answer` each.
 *
 * Arguments: bootstrap servers, the source's alias, a group, a pattern of groups, aliases to count hops to.
 */
public class AskMirrorClient {
    private static final Duration TIMEOUT = Duration.ofSeconds(20);

    public static void main(String[] args) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", args[0]);
        print("group", RemoteClusterUtils.translateOffsets(properties, args[1], args[2], TIMEOUT));
        RemoteClusterUtils.translateOffsets(properties, args[1], Pattern.compile(args[3]), TIMEOUT)
            .forEach((group, offsets) -> print("matching " + group, offsets));
        try (MirrorClient client = new MirrorClient(properties)) {
            print("heartbeats", client.heartbeatTopics());
            print("checkpoints", client.checkpointTopics());
            print("upstream", client.upstreamClusters());
            print("remote", client.remoteTopics());
            print("remote of source", client.remoteTopics(args[1]));
            for (int i = 4; i < args.length; i++)
                System.out.println("hops " + args[i] + ": " + client.replicationHops(args[i]));
        }
    }

    private static void print(String what, Map<TopicPartition, OffsetAndMetadata> offsets) {
        TreeSet<String> lines = new TreeSet<>();
        offsets.forEach((partition, offset) ->
            lines.add(partition + "=" + offset.offset() + "=" + offset.metadata()));
        print(what, lines);
    }

    private static void print(String what, Collection<String> answer) {
        System.out.println(what + ": " + String.join(" ", new TreeSet<>(answer)));
    }
}
