package onceflow.source;

import java.time.Duration;
import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;

/**
 * Tells a log that holds nothing more from brokers that do not answer: to a consumer, both are
 * silent.
 *
 * <p>A consumer moves on over what has no record only if a later batch follows. Where compaction
 * has left nothing before an open transaction, none can be read yet.
 */
final class LogEnd {
  static final long UNKNOWN = -1;
  private static final Duration POLL = Duration.ofMillis(100);
  private static final CloseOptions CLOSE = CloseOptions.timeout(Duration.ofSeconds(1));

  private LogEnd() {}

  /**
   * The last stable offset if nothing is between an offset and it, or that offset if something is.
   *
   * @return `UNKNOWN` if no broker answers in time
   */
  static long emptyUpTo(Map client, TopicPartition place, long at, long waitNs) {
    // Of its own: in an answer about several partitions, one may be empty for want of room.
    KafkaConsumer consumer = Clients.consumer(client);
    try {
      consumer.assign(Collections.singleton(place));
      consumer.seek(place, at);
      long begin = System.nanoTime();
      while (System.nanoTime() - begin < waitNs) {
        if (!consumer.poll(POLL).nextOffsets().isEmpty()) {
          return at;
        }
        long left = left(consumer);
        if (left != UNKNOWN) {
          return at + left;
        }
      }
    } catch (KafkaException error) {
      // The one that reads meets it too, and tells it.
      return UNKNOWN;
    } finally {
      consumer.close(CLOSE);
    }
    return UNKNOWN;
  }

  /** How far it is to the last stable offset, as the answer to a fetch has said. */
  private static long left(KafkaConsumer consumer) {
    Iterator all = consumer.metrics().values().iterator();
    while (all.hasNext()) {
      Metric metric = (Metric) all.next();
      if (metric.metricName().name().equals("records-lag")) {
        double found = ((Double) metric.metricValue()).doubleValue();
        return Double.isNaN(found) ? UNKNOWN : (long) found;
      }
    }
    return UNKNOWN;
  }
}
