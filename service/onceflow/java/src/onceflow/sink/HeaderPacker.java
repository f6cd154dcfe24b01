package onceflow.sink;

import java.nio.ByteBuffer;

/** Headers of the records of one batch: one that Python packed, with the flag and the sequence. */
public final class HeaderPacker {
  private static final int BYTES = 32;
  private static final int FLAGS_AT = 1;
  private static final int SEQUENCE_AT = 24;
  private static final int LAST_OF_BATCH = 1;

  private final byte[] common;

  /** Takes what `HeaderPacker.pack(0, 0)` of `onceflow.protocol.record` returns. */
  public HeaderPacker(byte[] common) {
    if (common.length != BYTES) {
      throw new IllegalArgumentException(
          "expected a header of " + BYTES + " bytes, found " + common.length);
    }
    this.common = common;
  }

  public byte[] pack(long sequence, boolean isLast) {
    byte[] header = (byte[]) common.clone();
    if (isLast) {
      header[FLAGS_AT] |= LAST_OF_BATCH;
    }
    ByteBuffer.wrap(header).putLong(SEQUENCE_AT, sequence);
    return header;
  }
}
