package onceflow.decoders;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;

/** The bytes of one datum, read from the front: with the mistakes that Python's reader finds. */
final class AvroBytes {
  /** Of values that take no bytes: their number is what a few bytes say that it is. */
  private static final int MAX_EMPTY = 1_000_000;

  byte[] bytes;
  int at;
  int end;
  private int empty;

  /** Where the text or the bytes are that were read last. */
  int from;

  void begin(byte[] bytes, int from, int to) {
    this.bytes = bytes;
    at = from;
    end = to;
    empty = 0;
  }

  static PayloadException wrong(String what) {
    return new PayloadException("not a datum of the schema: " + what);
  }

  /**
   * A whole number of at most 64 bits. Further bits are added to the first, as by the processor.
   */
  long number() throws PayloadException {
    if (at >= end) {
      throw wrong("EOFError");
    }
    long next = bytes[at++];
    long value = next & 0x7F;
    for (int shift = 7; next < 0; shift += 7) {
      if (at >= end) {
        throw wrong("IndexError");
      }
      next = bytes[at++];
      value |= (next & 0x7F) << shift;
    }
    return value >>> 1 ^ -(value & 1);
  }

  /** Passes over as many bytes, and sets where they are. */
  void skip(long size) throws PayloadException {
    if (size < 0 || size > end - at) {
      throw wrong("EOFError");
    }
    from = at;
    at += (int) size;
  }

  void skipText() throws PayloadException {
    skip(number());
    if (!Utf8.isValid(bytes, from, at)) {
      throw wrong("UnicodeDecodeError");
    }
  }

  String text() throws PayloadException {
    skipText();
    return new String(bytes, from, at - from, StandardCharsets.UTF_8);
  }

  byte[] copy() {
    byte[] copy = new byte[at - from];
    System.arraycopy(bytes, from, copy, 0, copy.length);
    return copy;
  }

  boolean isTrue() throws PayloadException {
    skip(1);
    return bytes[from] != 0;
  }

  float floating() throws PayloadException {
    skip(4);
    return Float.intBitsToFloat((int) littleEndian(4));
  }

  double floatingDouble() throws PayloadException {
    skip(8);
    return Double.longBitsToDouble(littleEndian(8));
  }

  private long littleEndian(int size) {
    long bits = 0;
    for (int place = size - 1; place >= 0; place--) {
      bits = bits << 8 | bytes[from + place] & 0xFF;
    }
    return bits;
  }

  /** Of the bytes that were passed over last. */
  BigInteger bigEndian() {
    return at == from ? BigInteger.ZERO : new BigInteger(copy());
  }

  /** After a value that began at `start`. */
  void countEmpty(int start) throws PayloadException {
    if (at == start && ++empty > MAX_EMPTY) {
      throw wrong("more than " + MAX_EMPTY + " items without a byte");
    }
  }
}
