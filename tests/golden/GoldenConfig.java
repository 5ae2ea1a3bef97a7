package org.apache.kafka.connect.mirror;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** What java.util.Properties reads, and which setting wins in MM2's own MirrorMakerConfig: seeded random files. */
public class GoldenConfig {
    private static final Random RANDOM = new Random(19);

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        List<String> files = new ArrayList<>();
        for (int i = 0; i < 400; i++) files.add(properties());
        write(directory.resolve("java_properties.json"), files);
        List<String> configs = new ArrayList<>();
        for (int i = 0; i < 14; i++) configs.add(configuration(i));
        write(directory.resolve("config_precedence.json"), configs);
    }

    private static String properties() throws Exception {
        String[] pieces = {"a", "b", "=", ":", " ", "\t", "\f", "#", "!", "\\", "\\", "\n", "\n", "\r", "\r\n", "\\u0041",
            "n", "t", "\\\n", "\\\r\n  ", "=", ":", "\u00e9", "\u000b", "\\ud83d\\ude00"};
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        int length = RANDOM.nextInt(18);
        if (RANDOM.nextInt(20) == 0) bytes.write("k=\\u00g0".getBytes(StandardCharsets.ISO_8859_1));
        for (int i = 0; i < length; i++) bytes.write(pick(pieces).getBytes(StandardCharsets.ISO_8859_1));
        // Java takes a backslash that is the whole last line for an empty key; that alone is not followed.
        bytes.write("\nlast=1".getBytes(StandardCharsets.ISO_8859_1));
        Properties read = new Properties();
        String found;
        try {
            read.load(new ByteArrayInputStream(bytes.toByteArray()));
            Map<String, Object> entries = new TreeMap<>();
            for (String name : read.stringPropertyNames()) entries.put(whole(name), whole(read.getProperty(name)));
            found = json(entries);
        } catch (IllegalArgumentException error) {
            found = "null";
        }
        StringBuilder hex = new StringBuilder();
        for (byte one : bytes.toByteArray()) hex.append(String.format("%02x", one));
        return "{\"file\":\"" + hex + "\",\"properties\":" + found + "}";
    }

    /** Half a surrogate pair as U+FFFD, which is what leaves the JVM. */
    private static String whole(String text) {
        return new String(text.getBytes(StandardCharsets.UTF_16), StandardCharsets.UTF_16);
    }

    private static final String[] CLIENT_KEYS =
        {"security.protocol", "ssl.truststore.password", "sasl.jaas.config", "sasl.mechanism", "ssl.key.password"};
    private static final String[] OTHER_KEYS = {"tasks.max", "topics", "groups", "emit.heartbeats.enabled", "enabled",
        "replication.policy.separator", "replication.policy.other", "offset-syncs.topic.location", "name", "xxx",
        "consumer.poll.timeout.ms", "admin.timeout.ms", "replication.factor", "source.cluster.alias", "consumer",
        "producerx", "offset.storage.topic", "offset.storage.replication.factor", "task", "task.foo", "worker.x",
        "key.converter.schemas.enable", "exactly.once.source.support", "group.id", "status.storage.topic",
        "config.providers.fake.param.q"};

    private static String configuration(int number) throws Exception {
        Map<String, String> properties = new HashMap<>();
        properties.put("clusters", "A, B");
        properties.put("A.bootstrap.servers", "a:1");
        properties.put("B.bootstrap.servers", "b:2");
        if (number % 3 == 0) properties.put("bootstrap.servers", "top:9");
        for (int i = 0; i < 6 + 2 * number; i++) {
            String key = key();
            properties.put(key, value(key));
        }
        MirrorMakerConfig config = new MirrorMakerConfig(properties);
        Map<String, Object> result = new TreeMap<>();
        result.put("properties", new TreeMap<>(properties));
        result.put("flows", config.clusterPairs().stream().map(Object::toString).sorted().toList());
        Map<String, Object> flows = new TreeMap<>();
        for (SourceAndTarget flow : config.clusterPairs()) {
            Map<String, String> connector = config.connectorBaseConfig(flow, MirrorSourceConnector.class);
            MirrorSourceConfig source = new MirrorSourceConfig(connector);
            Map<String, Object> one = new TreeMap<>();
            one.put("connector", new TreeMap<>(connector));
            one.put("worker", new TreeMap<>(config.workerConfig(flow)));
            one.put("source_consumer", new TreeMap<>(source.sourceConsumerConfig("role")));
            one.put("target_consumer", new TreeMap<>(source.targetConsumerConfig("role")));
            one.put("source_producer", new TreeMap<>(source.sourceProducerConfig("role")));
            one.put("target_producer", new TreeMap<>(source.targetProducerConfig("role")));
            one.put("source_admin", new TreeMap<>(source.sourceAdminConfig("role")));
            one.put("target_admin", new TreeMap<>(source.targetAdminConfig("role")));
            flows.put(flow.toString(), one);
        }
        result.put("by_flow", flows);
        Map<String, Object> mirrorClients = new TreeMap<>();
        for (String alias : new String[] {"A", "B"}) {
            MirrorClientConfig client = config.clientConfig(alias);
            mirrorClients.put(alias, Map.of("admin", given(client.adminConfig()), "consumer", given(client.consumerConfig()),
                "producer", given(client.producerConfig())));
        }
        result.put("mirror_clients", mirrorClients);
        return json(result);
    }

    private static String key() {
        String key = RANDOM.nextBoolean() ? clientKey() : pick(OTHER_KEYS);
        return switch (RANDOM.nextInt(8)) {
            case 0, 1 -> key;
            case 2, 3, 4 -> pick("A", "B") + "." + key;
            case 5 -> pick("A->B", "B->A") + "." + key;
            default -> pick("A->B", "B->A") + "." + pick("source.", "target.", "source.cluster.", "producer.override.") + clientKey();
        };
    }

    private static String clientKey() {
        return switch (RANDOM.nextInt(6)) {
            case 0 -> "consumer." + pick("isolation.level", "auto.offset.reset", "client.id", "enable.auto.commit");
            case 1 -> "producer." + pick("linger.ms", "client.id");
            case 2 -> "admin." + pick("timeout.ms", "client.id");
            case 3 -> pick("consumer.", "producer.", "admin.") + pick(CLIENT_KEYS);
            default -> pick(CLIENT_KEYS);
        };
    }

    /** Never a default: MirrorClientConfig fills those in and then nobody can tell. */
    private static String value(String key) {
        if (key.endsWith("enabled")) return pick("true", "false", "TRUE");
        if (key.endsWith("security.protocol")) return pick("SSL", "SASL_SSL");
        if (key.endsWith("mechanism")) return pick("PLAIN", "SCRAM-SHA-256");
        if (key.endsWith("location")) return pick("source", "target");
        if (key.endsWith("alias")) return pick("A", "B", "Z");
        if (key.endsWith(".ms") || key.endsWith("max") || key.endsWith("factor")) return "" + (1 + RANDOM.nextInt(9));
        return "v" + RANDOM.nextInt(100);
    }

    private static Map<String, Object> given(Map<String, Object> typed) {
        Map<String, Object> result = new TreeMap<>();
        typed.forEach((key, value) -> {
            if (key.equals("bootstrap.servers")) result.put(key, String.join(",", (List<String>) value));
            else if (List.of(CLIENT_KEYS).contains(key)) {
                String text = value instanceof org.apache.kafka.common.config.types.Password secret ? secret.value() : "" + value;
                if (!text.equals("PLAINTEXT") && !text.equals("GSSAPI")) result.put(key, text);
            }
        });
        return result;
    }

    private static String pick(String... choices) {
        return choices[RANDOM.nextInt(choices.length)];
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return new TreeMap<>(map).entrySet().stream().map(entry -> json(entry.getKey()) + ":" + json(entry.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List<?> list) return list.stream().map(GoldenConfig::json).collect(Collectors.joining(",", "[", "]"));
        StringBuilder text = new StringBuilder("\"");
        for (char one : value.toString().toCharArray()) {
            if (one < 0x20 || one > 0x7e || one == '"' || one == '\\') text.append(String.format("\\u%04x", (int) one));
            else text.append(one);
        }
        return text.append('"').toString();
    }

    private static void write(Path file, List<String> elements) throws Exception {
        Files.writeString(file, "[\n" + String.join(",\n", elements) + "\n]\n");
    }
}
