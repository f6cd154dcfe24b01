package onceflow.sink;

import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.clients.producer.internals.TransactionManager;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer that writes into a transaction which the driver has begun and will end.
 *
 * <p>It never sends InitProducerId or EndTxn. It adds partitions to the transaction as librdkafka
 * does, before the first record to each. Used by one thread. After any error it can only be closed.
 */
public final class JoinedProducer implements AutoCloseable {
  private static final String HEADER_NAME = "onceflow";

  private final ClientParts parts = new ClientParts();
  private final KafkaProducer client;
  private final TransactionManager manager;
  private final Answers answers = new Answers();
  private long sent = 0;

  /**
   * Makes a client; asks no broker.
   *
   * @throws IllegalStateException this is another client than the tested one
   */
  public JoinedProducer(Map settings, String transactionalId) {
    Properties all = new Properties();
    all.putAll(settings);
    all.put("transactional.id", transactionalId);
    all.put("enable.idempotence", "true");
    all.put("acks", "all");
    client = new KafkaProducer(all, new ByteArraySerializer(), new ByteArraySerializer());
    manager = parts.managerOf(client);
  }

  /**
   * Joins the transaction of this incarnation of the transactional id, which is fresh.
   *
   * @throws IllegalStateException the client is in a transaction, or has failed before
   */
  public void join(long producerId, short epoch) {
    if (producerId < 0 || epoch < 0) {
      throw new IllegalArgumentException("no producer: " + producerId + ", epoch " + epoch);
    }
    parts.enter(manager, producerId, epoch);
    client.beginTransaction();
  }

  /**
   * Queues a record. Waits for room in the queue, or for what the cluster says of the topic, up to
   * `max.block.ms`.
   *
   * @throws RefusedException this record, or one before, is not taken
   */
  public void send(
      String topic, int partition, long timestampMs, byte[] key, byte[] value, byte[] header) {
    answers.check();
    Iterable headers =
        header == null
            ? Collections.EMPTY_LIST
            : Collections.singletonList(new RecordHeader(HEADER_NAME, header));
    ProducerRecord record =
        new ProducerRecord(
            topic, Integer.valueOf(partition), Long.valueOf(timestampMs), key, value, headers);
    try {
      client.send(record, answers);
    } catch (KafkaException failed) {
      answers.check(); // what it failed of
      throw new RefusedException(failed);
    }
    sent++;
  }

  /**
   * Waits until every record is acknowledged, up to `delivery.timeout.ms`.
   *
   * @throws RefusedException one is not
   */
  public void flush() {
    try {
      client.flush();
    } catch (KafkaException interrupted) {
      throw new RefusedException(interrupted);
    }
    answers.check();
    if (answers.count() != sent) {
      throw new RefusedException(answers.count() + " of " + sent + " records are acknowledged");
    }
  }

  /**
   * Leaves the transaction with every record acknowledged; then the client may join another.
   *
   * @throws RefusedException not all are
   */
  public void leave() {
    flush();
    parts.leave(manager);
  }

  /** Ends the client; sends the broker nothing, and does not wait. */
  public void close() {
    client.close(Duration.ZERO);
  }

  /**
   * What became of the records. Called by the client's thread, and by ours for a record that the
   * client does not take.
   */
  private static final class Answers implements Callback {
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicReference refusal = new AtomicReference();

    public void onCompletion(RecordMetadata place, Exception error) {
      if (error == null) {
        acknowledged.incrementAndGet();
      } else {
        refusal.compareAndSet(null, error);
      }
    }

    long count() {
      return acknowledged.get();
    }

    void check() {
      Exception error = (Exception) refusal.get();
      if (error != null) {
        throw new RefusedException(error);
      }
    }
  }
}
