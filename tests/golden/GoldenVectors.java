package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.json.JsonConverter;

/** Prints what the real MirrorMaker 2 answers, as JSON files in the directory given; see README.md. */
public final class GoldenVectors {

    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        write(directory, "heartbeats", heartbeats());
        write(directory, "checkpoints", checkpoints());
        write(directory, "offset_syncs", offsetSyncs());
        write(directory, "source_offset_keys", sourceOffsetKeys());
        write(directory, "source_offset_values", sourceOffsetValues());
        write(directory, "murmur2", murmur2());
        write(directory, "policies", policies());
        write(directory, "regexes", regexes());
        write(directory, "offset_sync_stores", offsetSyncStores());
        write(directory, "offset_sync_writers", offsetSyncWriters());
        System.out.println("Kafka " + AppInfoParser.getVersion() + ", Java " + Runtime.version());
    }

    /** One JSON array per file, one element per line. */
    private static void write(Path directory, String name, List<Object> elements) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<String> lines = new ArrayList<>();
        for (Object element : elements)
            lines.add(mapper.writeValueAsString(element));
        Files.writeString(directory.resolve(name + ".json"), "[\n" + String.join(",\n", lines) + "\n]\n");
    }

    private static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2)
            map.put((String) pairs[i], pairs[i + 1]);
        return map;
    }

    private static List<Object> heartbeats() {
        List<Object> out = new ArrayList<>();
        for (Heartbeat h : List.of(new Heartbeat("A", "B", 1700000000000L), new Heartbeat("us-west", "größe", 0L),
                new Heartbeat("", "\uD83D\uDE00", Long.MAX_VALUE))) {
            out.add(map("source", h.sourceClusterAlias(), "target", h.targetClusterAlias(),
                "timestamp_ms", h.timestamp(), "key", HEX.formatHex(h.recordKey()),
                "value", HEX.formatHex(h.recordValue()), "line", h.toString()));
        }
        return out;
    }

    private static List<Object> checkpoints() {
        List<Object> out = new ArrayList<>();
        for (Checkpoint c : List.of(
                new Checkpoint("g1", new TopicPartition("A.t1", 3), 1234, 1201, ""),
                new Checkpoint("g1", new TopicPartition("A.t1", 3), 1234, 1201, "m"),
                new Checkpoint("grüße", new TopicPartition("A.B.t-1", Integer.MAX_VALUE), Long.MAX_VALUE, 0, "{\"x\": 1}"),
                new Checkpoint("", new TopicPartition("t", 0), 0, -1, "日本"))) {
            out.add(map("group", c.consumerGroupId(), "topic", c.topicPartition().topic(),
                "partition", c.topicPartition().partition(), "upstream_offset", c.upstreamOffset(),
                "downstream_offset", c.downstreamOffset(), "metadata", c.metadata(),
                "key", HEX.formatHex(c.recordKey()), "value", HEX.formatHex(c.recordValue()), "line", c.toString()));
        }
        return out;
    }

    private static List<Object> offsetSyncs() {
        List<Object> out = new ArrayList<>();
        for (OffsetSync s : List.of(
                new OffsetSync(new TopicPartition("t1", 3), 1200, 1187),
                new OffsetSync(new TopicPartition("a.b_c-d", 0), 0, 0),
                new OffsetSync(new TopicPartition("t", 999), Long.MAX_VALUE, -1))) {
            out.add(map("topic", s.topicPartition().topic(), "partition", s.topicPartition().partition(),
                "upstream_offset", s.upstreamOffset(), "downstream_offset", s.downstreamOffset(),
                "key", HEX.formatHex(s.recordKey()), "value", HEX.formatHex(s.recordValue()), "line", s.toString()));
        }
        return out;
    }

    private static JsonConverter converter() {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), true);
        return converter;
    }

    private static List<Object> sourceOffsetKeys() {
        JsonConverter keys = converter();
        List<Object> out = new ArrayList<>();
        String odd = "q\"\\/\b\t\n\f\r\u0001\u001f\u007f\u0080é日\u2028\uD83D\uDE00<>&'";
        List<String> clusters = List.of("A", "us-west", odd);
        List<String> topics = List.of("t1", "heartbeats", "orders.v1", odd);
        for (String cluster : clusters) {
            for (String topic : topics) {
                for (int partition : new int[] {0, 1, 12345}) {
                    Map<String, ?> fields = MirrorUtils.wrapPartition(new TopicPartition(topic, partition), cluster);
                    out.add(connectKey("MirrorSourceConnector", fields, keys,
                        map("cluster", cluster, "topic", topic, "partition", partition)));
                }
            }
        }
        for (String group : List.of("g1", odd)) {
            Checkpoint c = new Checkpoint(group, new TopicPartition("A.t1", 3), 0, 0, "");
            out.add(connectKey("MirrorCheckpointConnector", c.connectPartition(), keys,
                map("group", group, "topic", "A.t1", "partition", 3)));
        }
        out.add(connectKey("MirrorHeartbeatConnector", new Heartbeat("A", "B", 0).connectPartition(), keys,
            map("source", "A", "target", "B")));
        return out;
    }

    private static List<Object> sourceOffsetValues() {
        JsonConverter values = converter();
        List<Object> out = new ArrayList<>();
        for (long offset : new long[] {0, 41, Long.MAX_VALUE - 1}) {
            byte[] value = values.fromConnectData("mm2", null, MirrorUtils.wrapOffset(offset));
            out.add(map("offset", offset, "value", HEX.formatHex(value)));
        }
        return out;
    }

    private static Object connectKey(String connector, Map<String, ?> partition, JsonConverter keys, Object fields) {
        byte[] key = keys.fromConnectData("mm2", null, Arrays.asList(connector, partition));
        return map("connector", connector, "fields", fields, "key", HEX.formatHex(key),
            "partition_of_25", Utils.toPositive(Utils.murmur2(key)) % 25);
    }

    private static List<Object> murmur2() {
        List<Object> out = new ArrayList<>();
        List<byte[]> keys = new ArrayList<>();
        for (String text : List.of("", "21", "foobar", "abc", "a-little-bit-long-string", "a-little-bit-longer-string",
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8"))
            keys.add(text.getBytes(StandardCharsets.UTF_8));
        Random random = new Random(2);
        for (int length = 0; length < 40; length++) {
            byte[] key = new byte[length];
            random.nextBytes(key);
            keys.add(key);
        }
        for (byte[] key : keys)
            out.add(map("key", HEX.formatHex(key), "hash", Utils.murmur2(key)));
        return out;
    }

    private static List<Object> policies() {
        List<Map<String, String>> configs = List.of(
            Map.of(),
            Map.of("replication.policy.separator", "_"),
            Map.of("replication.policy.separator", "__", "replication.policy.internal.topic.separator.enabled", "false"),
            Map.of("replication.policy.internal.topic.separator.enabled", "false"),
            Map.of("replication.policy.separator", "-"));
        List<String> topics = List.of("orders", "a.b", "a.b.c", ".b", "a.", "a..", ".", "..", "a..b", "", "a_b", "a__b",
            "a___b", "__a", "_a", "__consumer_offsets", "heartbeats", "A.heartbeats", "B.A.heartbeats", "A_heartbeats",
            "B__A__heartbeats", "myheartbeats", "x.myheartbeats", "heartbeats.", "heartbeats!", "!heartbeats",
            "source1heartbeats", "source1-heartbeats", "A.checkpoints.internal", "checkpoints.internal",
            "A_checkpoints_internal", "A__checkpoints__internal", "source1checkpointsinternal",
            "checkpoints.internal!", "!checkpoints.internal", "mm2-offsets.A.internal", "mm2-offsets_A_internal",
            "mm2-offset-syncs.B.internal", "mm2-offset-syncs__B__internal", "mm2-configsync.A.internal",
            "mm2-offsets-CLUSTER-internal", "orders.internal", "orders-internal", ".hidden", "A.B.mm2.internal",
            "A-orders", "a-b-c", "-", "a-");
        List<Object> out = new ArrayList<>();
        for (Map<String, String> config : configs) {
            for (String alias : new String[] {"", "A"}) {
                for (boolean identity : new boolean[] {false, true}) {
                    if (!identity && !alias.isEmpty())
                        continue;
                    Map<String, String> full = new HashMap<>(config);
                    if (!alias.isEmpty())
                        full.put("source.cluster.alias", alias);
                    DefaultReplicationPolicy policy =
                        identity ? new IdentityReplicationPolicy() : new DefaultReplicationPolicy();
                    policy.configure(full);
                    full.put("replication.policy.class", policy.getClass().getName());
                    List<Object> answers = new ArrayList<>();
                    for (String topic : topics) {
                        answers.add(map("topic", topic, "remote", policy.formatRemoteTopic("A", topic),
                            "source", policy.topicSource(topic), "upstream", policy.upstreamTopic(topic),
                            "original", policy.originalTopic(topic), "heartbeats", policy.isHeartbeatsTopic(topic),
                            "checkpoints", policy.isCheckpointsTopic(topic),
                            "mm2_internal", policy.isMM2InternalTopic(topic),
                            "internal", policy.isInternalTopic(topic)));
                    }
                    out.add(map("config", full, "offset_syncs", policy.offsetSyncsTopic("B"),
                        "checkpoints", policy.checkpointsTopic("A"), "heartbeats", policy.heartbeatsTopic(),
                        "topics", answers));
                }
            }
        }
        return out;
    }

    private static List<Object> regexes() {
        List<String> patterns = List.of(".*", "*", "a*b", "orders", "orders|payments", "orders\\.v[0-9]+", "(?i)orders",
            "a(?i)b|c", "x|(?i)y|z", "(a(?i)b)c", "(?i:a)b", "(?-i)a", "(?i)a(?-i)b", "\\Qa.b\\E.*", "\\Qa|b", "a\\Q*\\E+",
            "[a-c&&[^b]]x", "[a-c[x-z]]", "[^a-c[x-z]]", "[a-z&&[def]]", "[^a-z&&[def]]", "[]a]", "[^]a]", "[a-]", "[-a]",
            "[a\\-z]", "[\\w.-]+", "[\\W]", "[^\\W]", "[a\\D]", "\\p{Alpha}+", "\\p{L}+", "\\p{Lu}\\p{Ll}*", "\\P{L}", "[\\p{L}_]+",
            "\\pL", "\\p{IsL}+", "[^\\p{Punct}]", "\\p{Punct}", "\\p{Nonsense}", "\\w+", "\\d+", "\\s", "é+", "(?i)É", "(?iu)É", "(?U)\\w",
            "a{2}", "a{2,}", "a{2,3}", "a{,3}", "a{", "{a}", "a}", "a]", "a++b", "a*+a", "a*?b", "(?>a*)a", "(?<name>a)\\k<name>",
            "(a)\\1", "(a)\\10", "(?=a)a", "(?!a).", "(?<=a)b", ".(?<!a)b", "(?P<n>a)", "(?#x)a", "a(", "a)", "[a", "a\\", "\\x41", "\\u0041",
            "\\x{41}", "\\0101", "\\t", "\\e", "\\cA", "\\y", "\\z", "a\\z", "a\\Z", "\\Aa", "a$", "^a", "\\ba\\b", "a\\B", "a\\.b", "a\\-b", "a\\_b",
            "[a&&b]", "[a&b]", "[a--b]", "[a~~b]", "[a||b]", "[[a]]", "[a&&]", "[z-a]", "\\h", "\\R", "(|a)", "a||b", "", "()", "(?x)a b",
            "test-topic-.*", ".*[\\-\\.]internal", "mm2.*\\.internal", "(?:a|b)+c", "(?s).", "(?m)^a$", "(?d)a", "[.]", "[*]", "[$^]", "[a^]",
            "[\\w-.]+", "[\\d-_]+", "[\\p{L}-_]+", "[\\p{Alpha}-.]+", "[_\\w-.]+", "[a-z\\d-_]+", "[\\s-x]", "[\\W-a]+",
            "[^\\w-.]", "[\\P{L}-a]+", "[\\pL-.]+", "[\\w--a]+", "[\\w-\\.]+", "[\\w-^]+", "[\\w-]+", "[\\w-[.]]+",
            "[\\w-&&[^a]]+", "[\\w&&\\d-_]+", "[\\d-\\w]+", "[\\d-a-c]+", "[\\h-x]", "[a-\\d]", "[.-\\w]", "[a-\\p{L}]",
            "[a-\\W]", "[\\v-x]", "[\\v-]", "[\\t-\\v]", "[\\v-\\d]", "[\\Qab\\E-c]", "[\\Q.\\E-a]", "[\\Q\\E-a]");
        List<String> names = List.of("", "a", "b", "c", "ab", "aB", "abc", "abC", "aBc", "B", "C", "x", "y", "Y", "Z", "z", "A",
            "orders", "ORDERS", "payments", "orders.v1", "orders.v", "ordersXv1", "a.b", "a.b.c", "aXb", "ax", "bx", "cx",
            "d", "e", "]", "-", "a-b", "a_b", "aa", "aaa", "aaaa", "aaab", "a+", "a*", "a**", "a|b", "é", "É", "éé", "Éa", "_", "1", "12", "٣",
            " ", "\t", "\u001b", "\u0001", "\n", "!", "^", "&", "~", "|", "$", ".", "*", "{", "{a}", "a}", "a{", "a]", "ba", "aa0", "a b",
            "test-topic-1", "mm2-offsets.A.internal", "x-internal", "aab", "ac", "bac", "Orders", "\\", "日本");
        List<Object> out = new ArrayList<>();
        for (String pattern : patterns) {
            List<String> matched = null;
            try {
                Pattern compiled = Pattern.compile(pattern);
                matched = new ArrayList<>();
                for (String name : names)
                    if (compiled.matcher(name).matches())
                        matched.add(name);
            } catch (PatternSyntaxException e) {
                matched = null;
            }
            out.add(map("pattern", pattern, "matches", matched));
        }
        return List.of(map("names", names, "patterns", out));
    }

    private static final class Store extends OffsetSyncStore {
        private final List<long[]> initial;

        Store(List<long[]> initial) {
            this.initial = initial;
        }

        @Override
        void backingStoreStart() {
            for (long[] sync : initial)
                sync(sync[0], sync[1]);
        }

        void sync(long upstream, long downstream) {
            OffsetSync s = new OffsetSync(new TopicPartition("t", 0), upstream, downstream);
            handleRecord(new ConsumerRecord<>("syncs", 0, 0, s.recordKey(), s.recordValue()));
        }
    }

    private static List<Object> offsetSyncStores() {
        List<Object> out = new ArrayList<>();
        TopicPartition tp = new TopicPartition("t", 0);
        Random random = new Random(7);
        for (int history = 0; history < 24; history++) {
            int bits = 1 + random.nextInt(40);
            int before = random.nextInt(60);
            int after = random.nextInt(140);
            List<long[]> syncs = new ArrayList<>();
            long upstream = random.nextInt(1000);
            long downstream = random.nextInt(1000);
            for (int i = 0; i < before + after; i++) {
                syncs.add(new long[] {upstream, downstream});
                long step = 1 + (random.nextLong() >>> (64 - bits));
                upstream = random.nextInt(200) == 0 ? upstream / 2 : upstream + step;
                downstream += random.nextInt(9) == 0 ? step / 2 + 1 : step;
            }
            boolean mustReadToEnd = random.nextBoolean();
            Store store = new Store(syncs.subList(0, before));
            store.start(mustReadToEnd);
            for (long[] sync : syncs.subList(before, before + after))
                store.sync(sync[0], sync[1]);
            List<Long> slots = new ArrayList<>();
            if (!syncs.isEmpty())
                for (int i = 0; i < 64; i++)
                    slots.add(store.syncFor(tp, i).upstreamOffset());
            List<Object> translations = new ArrayList<>();
            for (int i = 0; i < 30; i++) {
                long asked = syncs.isEmpty() ? i : syncs.get(random.nextInt(syncs.size()))[0] + random.nextInt(3) - 1;
                OptionalLong answer = store.translateDownstream("g", tp, asked);
                translations.add(Arrays.asList(asked, answer.isPresent() ? answer.getAsLong() : null));
            }
            out.add(map("must_read_to_end", mustReadToEnd, "before", syncs.subList(0, before),
                "after", syncs.subList(before, before + after), "slots", slots, "translations", translations));
        }
        return out;
    }

    /** No permits, so that nothing is sent and the queues can be read after each record. */
    private static List<Object> offsetSyncWriters() {
        List<Object> out = new ArrayList<>();
        Random random = new Random(11);
        for (int lag : new int[] {0, 1, 5, 100}) {
            OffsetSyncWriter writer = new OffsetSyncWriter(null, "syncs", new Semaphore(0), lag);
            TopicPartition tp = new TopicPartition("t", 0);
            List<Object> steps = new ArrayList<>();
            long upstream = 0;
            long downstream = 10;
            for (int i = 0; i < 60; i++) {
                boolean promote = random.nextInt(15) == 0;
                if (promote) {
                    writer.promoteDelayedOffsetSyncs();
                } else {
                    writer.maybeQueueOffsetSyncs(tp, upstream, downstream);
                }
                OffsetSync pending = writer.getPendingOffsetSyncs().get(tp);
                OffsetSync delayed = writer.getDelayedOffsetSyncs().get(tp);
                steps.add(map("promote", promote, "upstream", upstream, "downstream", downstream,
                    "pending", pending == null ? null : pending.upstreamOffset(),
                    "delayed", delayed == null ? null : delayed.upstreamOffset()));
                upstream += random.nextInt(12) == 0 ? random.nextInt(9) - 3 : 1;
                downstream += random.nextInt(10) == 0 ? random.nextInt(8) - 2 : 1;
            }
            out.add(map("offset_lag_max", lag, "steps", steps));
        }
        return out;
    }
}
