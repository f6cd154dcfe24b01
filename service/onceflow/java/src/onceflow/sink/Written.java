package onceflow.sink;

import java.io.Serializable;

/** What a task has written to one output partition. */
public final class Written implements Serializable {
  private final int partition;
  private final long count;
  private final long lastSequence;
  private final byte[] digest;

  Written(int partition, long count, long lastSequence, byte[] digest) {
    this.partition = partition;
    this.count = count;
    this.lastSequence = lastSequence;
    this.digest = digest;
  }

  public int partition() {
    return partition;
  }

  public long count() {
    return count;
  }

  public long lastSequence() {
    return lastSequence;
  }

  /** SHA-256 of the rows. */
  public byte[] digest() {
    return digest;
  }
}
