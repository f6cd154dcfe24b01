package onceflow.sink;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** SHA-256 over the rows of one output partition, as `onceflow.protocol.digest` has it. */
public final class RowDigest {
  private static final int PREFIX = 12;

  private final MessageDigest content;
  private ByteBuffer row = ByteBuffer.allocate(1024);

  public RowDigest() {
    try {
      content = MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException impossible) { // every Java has it
      throw new IllegalStateException(impossible);
    }
  }

  /** Takes in the next row. One call of the digest for each: several cost more than the copy. */
  public void add(int partition, byte[] key, byte[] value) {
    int size = PREFIX + size(key) + size(value);
    if (size > row.capacity()) {
      row = ByteBuffer.allocate(2 * size);
    }
    row.clear();
    row.putInt(partition).putInt(length(key)).putInt(length(value));
    if (key != null) {
      row.put(key);
    }
    if (value != null) {
      row.put(value);
    }
    content.update(row.array(), 0, size);
  }

  /** Returns the digest of the rows since the last call. */
  public byte[] end() {
    return content.digest();
  }

  private static int size(byte[] data) {
    return data == null ? 0 : data.length;
  }

  private static int length(byte[] data) {
    return data == null ? -1 : data.length;
  }
}
