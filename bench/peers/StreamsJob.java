import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

/** The jobs of the benchmark in Kafka Streams; arguments as `bench.peers` writes them. */
public final class StreamsJob {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Duration WINDOW = Duration.ofSeconds(10);
  private static final Duration LATENESS = Duration.ofSeconds(5);
  private static final AtomicLong DONE = new AtomicLong();

  record Event(String key, long amount, long at) {}

  record Total(long records, long total) {}

  private StreamsJob() {}

  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0];
    String input = arguments[1];
    String output = arguments[2];
    boolean isFinal = arguments[3].equals("final");
    long records = Long.parseLong(arguments[4]);
    String commitMs = arguments[5];
    String folder = arguments[6];
    boolean isFilter = arguments[7].equals("filter");

    Properties settings = new Properties();
    settings.put("application.id", output);
    settings.put("bootstrap.servers", servers);
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("commit.interval.ms", commitMs);
    settings.put("num.stream.threads", Runtime.getRuntime().availableProcessors());
    settings.put("replication.factor", 1);
    settings.put("state.dir", folder + "/state");
    settings.put("consumer.auto.offset.reset", "earliest");
    settings.put("consumer.max.poll.records", 10000);
    settings.put("producer.compression.type", "lz4");
    settings.put("producer.linger.ms", 5);
    settings.put("producer.batch.size", 256 * 1024);

    StreamsBuilder builder = new StreamsBuilder();
    KStream<byte[], Event> events =
        builder.stream(
            input,
            Consumed.with(Serdes.ByteArray(), events())
                .withTimestampExtractor((found, previous) -> ((Event) found.value()).at()));
    if (isFilter) {
      filter(events, output);
    } else {
      count(events, output, isFinal);
    }

    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
    streams.start();
    long told = 0;
    while (records == 0 || told < records) {
      Thread.sleep(100);
      if (streams.state() == KafkaStreams.State.ERROR) {
        System.exit(1);
      }
      // The last ones count when they are committed.
      long done = DONE.get();
      if (records > 0 && done >= records) {
        streams.close(Duration.ofSeconds(60));
        done = records;
      }
      tell(done - told);
      told = done;
    }
  }

  /** Nine of ten records come out, with one column computed. */
  private static void filter(KStream<byte[], Event> events, String output) {
    events
        .peek((key, event) -> DONE.incrementAndGet())
        .filter((key, event) -> event.amount() % 10 != 0)
        .map(
            (key, event) -> {
              ObjectNode row = JSON.createObjectNode();
              row.put("ad_id", event.key()).put("doubled", event.amount() * 2);
              return KeyValue.pair(event.key(), bytes(row.put("ts", event.at())));
            })
        .to(output, Produced.with(Serdes.String(), Serdes.ByteArray()));
  }

  private static void count(KStream<byte[], Event> events, String output, boolean isFinal) {
    events
        .map((nothing, event) -> KeyValue.pair(event.key(), event))
        // Each key stays in its partition: else one that is read ahead makes others late.
        .repartition(
            Repartitioned.<String, Event>as("by-key")
                .withKeySerde(Serdes.String())
                .withValueSerde(compactEvents())
                .withStreamPartitioner(
                    (topic, key, event, partitions) ->
                        Optional.of(Set.of(Integer.parseInt(key.substring(1)) % partitions))))
        .groupByKey()
        .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, LATENESS))
        .emitStrategy(isFinal ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate())
        .aggregate(
            () -> new Total(0, 0),
            (key, event, total) -> {
              DONE.incrementAndGet();
              return new Total(total.records() + 1, total.total() + event.amount());
            },
            store(isFinal))
        .toStream()
        .map(
            (window, total) -> {
              ObjectNode row = JSON.createObjectNode();
              row.put("ad_id", window.key()).put("window_ms", window.window().start());
              row.put("records", total.records()).put("total", total.total());
              return KeyValue.pair(window.key(), bytes(row));
            })
        .to(output, Produced.with(Serdes.String(), Serdes.ByteArray()));
  }

  private static Materialized<String, Total, WindowStore<Bytes, byte[]>> store(boolean isFinal) {
    Materialized<String, Total, WindowStore<Bytes, byte[]>> store =
        Materialized.<String, Total, WindowStore<Bytes, byte[]>>as("totals")
            .withKeySerde(Serdes.String())
            .withValueSerde(totals());
    // At the first window, a cache is searched minute by minute from 1970 on: 6 s for each task.
    return isFinal ? store.withCachingDisabled() : store;
  }

  private static void tell(long records) {
    if (records > 0) {
      System.out.println("{\"event\":\"batch\",\"records\":{\"read\":" + records + "}}");
    }
  }

  private static byte[] bytes(ObjectNode row) {
    try {
      return JSON.writeValueAsBytes(row);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static Serde<Event> events() {
    Deserializer<Event> read =
        (topic, data) -> {
          try {
            JsonNode row = JSON.readTree(data);
            return new Event(
                row.get("ad_id").asText(), row.get("amount").asLong(), row.get("ts").asLong());
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        };
    return Serdes.serdeFrom(
        (topic, event) -> {
          throw new UnsupportedOperationException("the input is only read");
        },
        read);
  }

  private static Serde<Event> compactEvents() {
    Serializer<Event> write = (topic, event) -> pair(event.amount(), event.at());
    Deserializer<Event> read =
        (topic, data) -> {
          ByteBuffer both = ByteBuffer.wrap(data);
          return new Event(null, both.getLong(), both.getLong());
        };
    return Serdes.serdeFrom(write, read);
  }

  private static Serde<Total> totals() {
    Serializer<Total> write =
        (topic, total) -> total == null ? null : pair(total.records(), total.total());
    Deserializer<Total> read =
        (topic, data) -> {
          if (data == null) {
            return null;
          }
          ByteBuffer both = ByteBuffer.wrap(data);
          return new Total(both.getLong(), both.getLong());
        };
    return Serdes.serdeFrom(write, read);
  }

  private static byte[] pair(long first, long second) {
    return ByteBuffer.allocate(16).putLong(first).putLong(second).array();
  }
}
