package onceflow.decoders;

import java.util.Arrays;

/** Base64 as strict as Python's, with its complaints. */
final class Base64Text {
  private static final String ALPHABET =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

  private Base64Text() {}

  static byte[] decode(String text) throws PayloadException {
    for (int at = 0; at < text.length(); at++) {
      if (text.charAt(at) > 0x7F) {
        throw new PayloadException("string argument should contain only ASCII characters");
      }
    }
    if (text.startsWith("=")) {
      throw new PayloadException("Leading padding not allowed");
    }
    byte[] bytes = new byte[text.length() / 4 * 3 + 3];
    int size = 0;
    int quad = 0;
    int left = 0;
    int pads = 0;
    boolean isPadded = false;
    for (int at = 0; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c == '=') {
        isPadded = true;
        if (quad >= 2 && quad + ++pads >= 4) {
          if (at + 1 < text.length()) {
            throw new PayloadException("Excess data after padding");
          }
          return Arrays.copyOf(bytes, size);
        }
        continue;
      }
      int value = ALPHABET.indexOf(c);
      if (value < 0) {
        throw new PayloadException("Only base64 data is allowed");
      }
      if (isPadded) {
        throw new PayloadException("Discontinuous padding not allowed");
      }
      pads = 0;
      switch (quad) {
        case 0:
          quad = 1;
          left = value;
          break;
        case 1:
          quad = 2;
          bytes[size++] = (byte) (left << 2 | value >> 4);
          left = value & 0x0F;
          break;
        case 2:
          quad = 3;
          bytes[size++] = (byte) (left << 4 | value >> 2);
          left = value & 0x03;
          break;
        default:
          quad = 0;
          bytes[size++] = (byte) (left << 6 | value);
          left = 0;
      }
    }
    if (quad == 1) {
      int found = size / 3 * 4 + 1;
      throw new PayloadException(
          "Invalid base64-encoded string: number of data characters ("
              + found
              + ") cannot be 1 more than a multiple of 4");
    }
    if (quad != 0) {
      throw new PayloadException("Incorrect padding");
    }
    return Arrays.copyOf(bytes, size);
  }
}
