package onceflow.decoders;

import java.math.BigInteger;
import java.util.UUID;

/** UUIDs in every way of writing that Python takes. */
final class Uuids {
  private static final int DIGITS = 32;

  private Uuids() {}

  static UUID parse(String text) throws PayloadException {
    String bare = text.replace("urn:", "").replace("uuid:", "");
    int from = 0;
    int to = bare.length();
    while (from < to && isBrace(bare.charAt(from))) {
      from++;
    }
    while (to > from && isBrace(bare.charAt(to - 1))) {
      to--;
    }
    String hex = bare.substring(from, to).replace("-", "");
    if (hex.codePointCount(0, hex.length()) != DIGITS) {
      throw AvroBytes.wrong("ValueError");
    }
    BigInteger value = number(hex);
    return new UUID(value.shiftRight(64).longValue(), value.longValue());
  }

  private static boolean isBrace(char c) {
    return c == '{' || c == '}';
  }

  /** As Python reads a number of base 16. */
  private static BigInteger number(String text) throws PayloadException {
    String plain = ExactNumber.plainDigits(text);
    if (!plain.matches("\\+?(0[xX]_?)?[0-9a-fA-F]+(_[0-9a-fA-F]+)*")) {
      throw AvroBytes.wrong("ValueError");
    }
    return new BigInteger(plain.replaceFirst("^\\+?(0[xX])?", "").replace("_", ""), 16);
  }
}
