package org.apache.kafka.common.record.internal;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.Utils;

/** Prints batches as Kafka's own classes write them, and what those classes read in them; see README.md. */
public final class GoldenBatches {

    private static final HexFormat HEX = HexFormat.of();
    private static final long NOON = 1_700_000_000_000L;
    private static final long BASE_OFFSET = 1_000_000L;
    private static final long APPENDED = NOON + 60_000;
    private static final List<Map<String, Object>> CASES = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType type : CompressionType.values()) {
                if (type == CompressionType.ZSTD && magic < 2) {
                    continue;
                }
                for (TimestampType time : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)) {
                    if (magic == 0 && time == TimestampType.LOG_APPEND_TIME) {
                        continue;
                    }
                    String name = "v" + magic + " " + type.name + " " + time;
                    add(name, build(magic, type, time, -1, false));
                }
            }
        }
        add("v2 none transactional", build((byte) 2, CompressionType.NONE, TimestampType.CREATE_TIME, 4711, true));
        add("v2 abort marker", marker(ControlRecordType.ABORT));
        add("v2 commit marker", marker(ControlRecordType.COMMIT));
        for (CompressionType type : CompressionType.values()) {
            add("v2 " + type.name + " compacted", compact(build((byte) 2, type, TimestampType.CREATE_TIME, -1, false), 1, 3));
            add("v2 " + type.name + " compacted to nothing", compact(build((byte) 2, type, TimestampType.CREATE_TIME, 4711, false)));
            if (type != CompressionType.ZSTD) {
                add("v1 " + type.name + " compacted", compact(build((byte) 1, type, TimestampType.CREATE_TIME, -1, false), 1, 3));
            }
        }
        StringBuilder json = new StringBuilder("[\n");
        ObjectMapper mapper = new ObjectMapper();
        for (int i = 0; i < CASES.size(); i++) {
            json.append(mapper.writeValueAsString(CASES.get(i))).append(i + 1 < CASES.size() ? ",\n" : "\n");
        }
        Files.writeString(Path.of(args[0], "batches.json"), json.append("]\n"), StandardCharsets.UTF_8);
    }

    private static MemoryRecords build(byte magic, CompressionType type, TimestampType time, long producer, boolean transactional) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(4096), magic, Compression.of(type).build(), time, BASE_OFFSET, APPENDED,
            producer, (short) (producer < 0 ? -1 : 7), producer < 0 ? -1 : 100, transactional, 3);
        append(builder, magic, NOON, "key", "value", new RecordHeader("h", bytes("x")), new RecordHeader("h", null), new RecordHeader("", bytes("")));
        append(builder, magic, NOON - 1_000, null, "");
        append(builder, magic, NOON + 5, "", null);
        append(builder, magic, NOON + 86_400_000L * 365, "long", "0123456789".repeat(40), new RecordHeader("ключ", bytes("значение")));
        append(builder, magic, NOON, "last", "of this batch");
        return builder.build();
    }

    private static void append(MemoryRecordsBuilder builder, byte magic, long timestamp, String key, String value, Header... headers) {
        builder.append(timestamp, bytes(key), bytes(value), magic < 2 ? new Header[0] : headers);
    }

    private static MemoryRecords marker(ControlRecordType type) {
        return MemoryRecords.withEndTransactionMarker(BASE_OFFSET, NOON, 3, 4711, (short) 7, new EndTransactionMarker(type, 5));
    }

    private static MemoryRecords compact(MemoryRecords records, int... kept) {
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(NOON, 1_000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                BatchRetention empty = batch.magic() < 2 ? BatchRetention.DELETE_EMPTY : BatchRetention.RETAIN_EMPTY;
                return new BatchRetentionResult(empty, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                for (int index : kept) {
                    if (record.offset() == BASE_OFFSET + index) {
                        return true;
                    }
                }
                return false;
            }
        };
        ByteBuffer out = ByteBuffer.allocate(4096);
        records.filterTo(filter, out, BufferSupplier.NO_CACHING);
        out.flip();
        return MemoryRecords.readableRecords(out);
    }

    private static void add(String name, MemoryRecords records) {
        Map<String, Object> golden = new LinkedHashMap<>();
        golden.put("name", name);
        golden.put("bytes", HEX.formatHex(Utils.toArray(records.buffer().duplicate())));
        List<Map<String, Object>> batches = new ArrayList<>();
        List<Map<String, Object>> read = new ArrayList<>();
        for (RecordBatch batch : records.batches()) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("magic", batch.magic());
            fields.put("last_offset", batch.lastOffset());
            fields.put("next_offset", batch.nextOffset());
            fields.put("is_control", batch.isControlBatch());
            fields.put("is_transactional", batch.isTransactional());
            fields.put("producer_id", batch.producerId());
            fields.put("is_log_append_time", batch.timestampType() == TimestampType.LOG_APPEND_TIME);
            fields.put("size_bytes", batch.sizeInBytes());
            fields.put("codec", batch.compressionType().name);
            batches.add(fields);
            for (Record record : batch) {
                Map<String, Object> item = new LinkedHashMap<>();
                item.put("offset", record.offset());
                item.put("timestamp_ms", record.timestamp());
                item.put("key", record.hasKey() ? HEX.formatHex(Utils.toArray(record.key())) : null);
                item.put("value", record.hasValue() ? HEX.formatHex(Utils.toArray(record.value())) : null);
                List<List<String>> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    List<String> pair = new ArrayList<>();
                    pair.add(HEX.formatHex(bytes(header.key())));
                    pair.add(header.value() == null ? null : HEX.formatHex(header.value()));
                    headers.add(pair);
                }
                item.put("headers", headers);
                read.add(item);
            }
        }
        golden.put("batches", batches);
        golden.put("records", read);
        CASES.add(golden);
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private GoldenBatches() {
    }
}
