package onceflow.decoders;

/** Checks UTF-8, and says what is wrong in the words of Python's codec. */
final class Utf8 {
  private static final String START = "invalid start byte";
  private static final String CONTINUATION = "invalid continuation byte";
  private static final String END = "unexpected end of data";

  private Utf8() {}

  /** Whether all bytes between the two places are UTF-8. */
  static boolean isValid(byte[] bytes, int from, int to) {
    int at = from;
    while (at < to) {
      if (bytes[at] >= 0) {
        at++;
        continue;
      }
      int length = sequence(bytes, at, to);
      if (length <= 0) {
        return false;
      }
      at += length;
    }
    return true;
  }

  /** Refuses a payload that is not UTF-8, and names its first wrong bytes. */
  static void check(byte[] bytes, int from, int to) throws PayloadException {
    int at = from;
    while (at < to) {
      int length = bytes[at] >= 0 ? 1 : sequence(bytes, at, to);
      if (length <= 0) {
        throw new PayloadException(complaint(bytes, from, at, to, length));
      }
      at += length;
    }
  }

  private static String complaint(byte[] bytes, int from, int at, int to, int length) {
    int wrong = length == CUT_OFF ? to - at : Math.max(-length, 1);
    String why = length == CUT_OFF ? END : length == 0 ? START : CONTINUATION;
    int first = at - from;
    String where =
        wrong == 1
            ? "byte 0x" + Integer.toHexString(bytes[at] & 0xFF) + " in position " + first
            : "bytes in position " + first + "-" + (first + wrong - 1);
    return "'utf-8' codec can't decode " + where + ": " + why;
  }

  private static final int CUT_OFF = -9;

  /**
   * The length of the sequence that begins here; if it is wrong: 0 if nothing begins like this,
   * CUT_OFF if the text ends in it, or else minus the number of bytes before the wrong one.
   */
  private static int sequence(byte[] bytes, int at, int to) {
    int first = bytes[at] & 0xFF;
    if (first < 0xC2 || first > 0xF4) {
      return 0;
    }
    int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    for (int place = 1; place < length; place++) {
      if (at + place >= to) {
        return CUT_OFF;
      }
      int next = bytes[at + place] & 0xFF;
      if ((next & 0xC0) != 0x80 || place == 1 && !mayFollow(first, next)) {
        return -place;
      }
    }
    return length;
  }

  private static boolean mayFollow(int first, int second) {
    switch (first) {
      case 0xE0:
        return second >= 0xA0;
      case 0xED:
        return second < 0xA0;
      case 0xF0:
        return second >= 0x90;
      case 0xF4:
        return second < 0x90;
      default:
        return true;
    }
  }
}
