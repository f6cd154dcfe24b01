package onceflow.sink;

import java.io.Serializable;
import java.util.Map;

/**
 * The order to the tasks of one attempt: the transaction that they join, and how their records
 * continue what is in the topic.
 */
public final class Assignment implements Serializable {
  final String topic;
  final long[] nextSequences;
  final byte[] header;
  final long timestampMs;

  /** Settings of the clients; null if nothing is to be written. */
  final Map settings;

  final String transactionalId;
  final long producerId;
  final short epoch;

  private Assignment(
      String topic,
      long[] nextSequences,
      byte[] header,
      long timestampMs,
      Map settings,
      String transactionalId,
      long producerId,
      short epoch) {
    this.topic = topic;
    this.nextSequences = nextSequences;
    this.header = header;
    this.timestampMs = timestampMs;
    this.settings = settings;
    this.transactionalId = transactionalId;
    this.producerId = producerId;
    this.epoch = epoch;
  }

  /**
   * To write.
   *
   * @param nextSequences for each partition of the topic
   * @param header of the batch, without flag and sequence
   */
  public static Assignment toWrite(
      String topic,
      long[] nextSequences,
      byte[] header,
      long timestampMs,
      Map settings,
      String transactionalId,
      long producerId,
      int epoch) {
    return new Assignment(
        topic,
        nextSequences,
        header,
        timestampMs,
        settings,
        transactionalId,
        producerId,
        (short) epoch);
  }

  /** To write nothing, and report what would be written: for a batch that is committed already. */
  public static Assignment toCompare(String topic, long[] nextSequences) {
    return new Assignment(topic, nextSequences, new byte[32], 0, null, "", -1, (short) -1);
  }

  boolean isWriting() {
    return settings != null;
  }
}
