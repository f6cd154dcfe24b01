package onceflow.sink;

/**
 * The rows of one batch in the order of the batch. The query has run, or runs, once: they can be
 * written into one transaction after the other.
 */
public interface BatchRows extends AutoCloseable {
  /**
   * Writes them, or only reads them, and returns what was written to each partition.
   *
   * <p>After any exception the transaction must not be committed, and is used up.
   *
   * @throws RefusedException Kafka did not take a record
   */
  Written[] write(Assignment assignment);

  /** Forgets them. */
  void close();
}
