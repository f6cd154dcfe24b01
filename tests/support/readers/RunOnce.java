import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** Copies a topic, each record once, until its standard input ends: arguments are settings. */
public class RunOnce {
  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0], from = arguments[1], to = arguments[2], folder = arguments[3];
    StreamsBuilder builder = new StreamsBuilder();
    builder.<byte[], byte[]>stream(from).processValues(new Once<>()).to(to);
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, to);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, folder);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    settings.put("auto.offset.reset", "earliest");
    CountDownLatch over = new CountDownLatch(1);
    try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
      streams.setStateListener(
          (now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
              over.countDown();
            }
          });
      streams.start();
      Thread reader =
          new Thread(
              () -> {
                try {
                  System.in.read();
                } catch (java.io.IOException gone) {
                  // The test has ended.
                }
                over.countDown();
              });
      reader.setDaemon(true);
      reader.start();
      over.await();
      System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
    }
  }
}
