package onceflow.decoders;

import java.nio.charset.StandardCharsets;

/**
 * Dates and times in ISO 8601: the common forms from bytes, and all that Python reads from text.
 */
final class IsoText {
  /** Not a time; no year that we read comes near. */
  static final long NONE = Long.MIN_VALUE;

  private static final long DAY_US = 86_400_000_000L;
  private static final int[] TENS = {1, 10, 100, 1_000, 10_000, 100_000, 1_000_000};
  private static final int[] DAYS = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

  private IsoText() {}

  /** Days since 1970 of `2026-11-01`, from the year 0 on, or NONE. */
  static long quickDay(byte[] b, int from, int to) {
    if (to - from != 10 || b[from + 4] != '-' || b[from + 7] != '-') {
      return NONE;
    }
    int year = two(b, from) * 100 + two(b, from + 2);
    int month = two(b, from + 5);
    int day = two(b, from + 8);
    boolean isDay = two(b, from) >= 0 && two(b, from + 2) >= 0 && month >= 1 && month <= 12;
    return isDay && day >= 1 && day <= daysOf(year, month) ? epochDay(year, month, day) : NONE;
  }

  /**
   * Microseconds since 1970 of `2026-11-01T10:00:00.5+01:00` and shorter forms, or NONE.
   *
   * @param isFine takes up to nine digits instead of six, for years that nanoseconds reach
   */
  static long quickMoment(byte[] b, int from, int to, boolean isFine) {
    int end = to;
    long day = end - from < 10 ? NONE : quickDay(b, from, from + 10);
    if (day == NONE) {
      return NONE;
    }
    long offset = 0;
    long second = 0;
    long fraction = 0;
    if (end - from > 10) {
      if (b[from + 10] != ' ' && b[from + 10] != 'T') {
        return NONE;
      }
      int length = end - from;
      if (b[end - 1] == 'Z') {
        end--;
      } else if (length > 13) {
        int zone =
            isSign(b[end - 3])
                ? end - 3
                : isSign(b[end - 5])
                    ? end - 5
                    : length > 15 && isSign(b[end - 6]) && b[end - 3] == ':' ? end - 6 : -1;
        if (zone >= 0) {
          int hours = two(b, zone + 1);
          int minutes = end - zone == 3 ? 0 : two(b, end - 2);
          if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) {
            return NONE;
          }
          offset = (b[zone] == '-' ? -1 : 1) * (hours * 3600L + minutes * 60L);
          end = zone;
        }
      }
      length = end - from;
      second = quickClock(b, from + 11, length - 11);
      if (second < 0) {
        return NONE;
      }
      if (length > 19) {
        int digits = length - 20;
        if (b[from + 19] != '.' || digits < 1 || digits > (isFine ? 9 : 6)) {
          return NONE;
        }
        for (int at = from + 20; at < end; at++) {
          if (b[at] < '0' || b[at] > '9') {
            return NONE;
          }
          fraction = fraction * 10 + b[at] - '0';
        }
        fraction *= digits <= 6 ? TENS[6 - digits] : 1;
        if (digits > 6) {
          return fine(day * 86_400 + second - offset, fraction * TENS[9 - digits]);
        }
      }
    }
    long at = day * 86_400 + second - offset;
    return isFine && fine(at, fraction * 1000) == NONE ? NONE : at * 1_000_000 + fraction;
  }

  /**
   * Nanoseconds must fit into 64 bits, as they did on the way; what follows microseconds is cut.
   */
  private static long fine(long second, long nanos) {
    long base = second * 1_000_000_000L;
    if (Math.multiplyHigh(second, 1_000_000_000L) != base >> 63) {
      return NONE;
    }
    long sum = base + nanos;
    return base > 0 && sum < 0 ? NONE : sum / 1000;
  }

  private static boolean isSign(byte c) {
    return c == '+' || c == '-';
  }

  /** Seconds since midnight of `10`, `10:00` or `10:00:00`, which may go on after that; or -1. */
  private static long quickClock(byte[] b, int at, int length) {
    if (length != 2 && length != 5 && length < 8) {
      return -1;
    }
    int hour = two(b, at);
    int minute = length < 5 ? 0 : b[at + 2] == ':' ? two(b, at + 3) : -1;
    int second = length < 8 ? 0 : b[at + 5] == ':' ? two(b, at + 6) : -1;
    boolean isTime = hour >= 0 && hour < 24 && minute >= 0 && minute < 60;
    return isTime && second >= 0 && second < 60 ? hour * 3600L + minute * 60L + second : -1;
  }

  private static int two(byte[] b, int at) {
    int tens = b[at] - '0';
    int ones = b[at + 1] - '0';
    return tens < 0 || tens > 9 || ones < 0 || ones > 9 ? -1000 : tens * 10 + ones;
  }

  static int daysOf(int year, int month) {
    boolean isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && isLeap ? 29 : DAYS[month - 1];
  }

  static long epochDay(int year, int month, int day) {
    int y = month <= 2 ? year - 1 : year;
    int era = Math.floorDiv(y, 400);
    int ofEra = y - era * 400;
    int ofYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146_097L + ofEra * 365L + ofEra / 4 - ofEra / 100 + ofYear - 719_468;
  }

  /** As Python's `date.fromisoformat`. */
  static int day(String text) throws PayloadException {
    Parser parser = new Parser(text);
    int length = parser.length;
    boolean isKnown = length == 7 || length == 8 || length == 10;
    if (!isKnown || parser.hasSurrogates || !parser.date(length)) {
      throw parser.invalid();
    }
    parser.checkDate();
    return (int) epochDay(parser.year, parser.month, parser.day);
  }

  /** As Python's `datetime.fromisoformat`, in UTC if there is no zone: microseconds since 1970. */
  static long moment(String text) throws PayloadException {
    Parser parser = new Parser(separated(text));
    parser.text = text;
    if (parser.hasSurrogates || parser.length < 7) {
      throw parser.invalid();
    }
    int separator = parser.separator();
    if (separator < 0 || separator > parser.length || !parser.date(separator)) {
      throw parser.invalid();
    }
    if (parser.length > separator && !parser.time(separator)) {
      throw parser.invalid();
    }
    if (Math.abs(parser.offset) >= DAY_US) {
      throw new PayloadException(
          "offset must be a timedelta strictly between -timedelta(hours=24) and"
              + " timedelta(hours=24), not "
              + duration(parser.offset)
              + ".");
    }
    parser.checkDate();
    parser.checkTime();
    long at = epochDay(parser.year, parser.month, parser.day) * DAY_US;
    at += parser.hour * 3_600_000_000L + parser.minute * 60_000_000L;
    at += parser.second * 1_000_000L + parser.micros - parser.offset;
    if (at < epochDay(1, 1, 1) * DAY_US || at >= epochDay(10_000, 1, 1) * DAY_US) {
      throw new PayloadException("date value out of range");
    }
    return at;
  }

  /** A half of a surrogate pair may separate date and time, as any other character. */
  private static String separated(String text) {
    for (int place = 7; place <= 10; place += place == 7 ? 1 : 2) {
      if (place < text.length() && text.length() >= 7) {
        char c = text.charAt(place);
        boolean isPair =
            Character.isHighSurrogate(c)
                && place + 1 < text.length()
                && Character.isLowSurrogate(text.charAt(place + 1));
        if (Character.isSurrogate(c) && !isPair) {
          return text.substring(0, place) + "T" + text.substring(place + 1);
        }
      }
    }
    return text;
  }

  private static String duration(long micros) {
    long days = Math.floorDiv(micros, DAY_US);
    long rest = micros - days * DAY_US;
    StringBuilder text = new StringBuilder("datetime.timedelta(");
    String separator = "";
    if (days != 0) {
      text.append("days=").append(days);
      separator = ", ";
    }
    if (rest / 1_000_000 != 0) {
      text.append(separator).append("seconds=").append(rest / 1_000_000);
      separator = ", ";
    }
    if (rest % 1_000_000 != 0) {
      text.append(separator).append("microseconds=").append(rest % 1_000_000);
    }
    return text.append(')').toString();
  }

  /** Follows Python's parser step by step, so that both take the same texts. */
  private static final class Parser {
    String text;
    final byte[] b;
    final int length;
    final boolean hasSurrogates;
    int year;
    int month;
    int day;
    int hour;
    int minute;
    int second;
    int micros;
    long offset;
    private int[] clock = new int[4];
    private int at;

    Parser(String text) {
      this.text = text;
      hasSurrogates = !StandardCharsets.UTF_8.newEncoder().canEncode(text);
      b = text.getBytes(StandardCharsets.UTF_8);
      length = b.length;
    }

    PayloadException invalid() {
      return new PayloadException("Invalid isoformat string: " + Texts.shown(text));
    }

    private int at(int place) {
      return place < length ? (int) b[place] : 0;
    }

    private boolean isDigit(int place) {
      return at(place) >= '0' && at(place) <= '9';
    }

    /** The number of this many digits from here; goes on after them. -1 if there are fewer. */
    private int digits(int count) {
      int value = 0;
      for (int left = count; left > 0; left--) {
        if (!isDigit(at)) {
          return -1;
        }
        value = value * 10 + b[at++] - '0';
      }
      return value;
    }

    /** Where the date ends; it has several forms, and any character may follow. */
    int separator() {
      if (length == 7) {
        return 7;
      }
      if (at(4) == '-') {
        if (at(5) != 'W') {
          return 10;
        }
        if (length > 8 && at(8) == '-') {
          return length == 9 ? -1 : length > 10 && isDigit(10) ? 8 : 10;
        }
        return 8;
      }
      if (at(4) != 'W') {
        return 8;
      }
      int place = 7;
      while (place < length && isDigit(place)) {
        place++;
      }
      return place < 9 ? place : place % 2 == 0 ? 7 : 8;
    }

    boolean date(int end) {
      at = 0;
      year = digits(4);
      if (year < 0) {
        return false;
      }
      boolean isSeparated = at(at) == '-';
      at += isSeparated ? 1 : 0;
      if (at(at) == 'W') {
        at++;
        return week(end, isSeparated);
      }
      month = digits(2);
      if (month < 0 || isSeparated && at(at++) != '-') {
        return false;
      }
      day = digits(2);
      return day >= 0 && at == end;
    }

    private boolean week(int end, boolean isSeparated) {
      int week = digits(2);
      if (week < 0) {
        return false;
      }
      int weekday = 1;
      if (at < end) {
        if (isSeparated && at(at++) != '-') {
          return false;
        }
        weekday = digits(1);
        if (weekday < 0) {
          return false;
        }
      }
      return ofWeek(week, weekday);
    }

    private boolean ofWeek(int week, int weekday) {
      int first = Math.floorMod((int) epochDay(year, 1, 1) + 3, 7);
      boolean isLeap = daysOf(year, 2) == 29;
      boolean isLong = first == 3 || first == 2 && isLeap;
      if (week < 1 || week > (isLong ? 53 : 52) || weekday < 1 || weekday > 7) {
        return false;
      }
      if (year == 0) {
        year = 1;
        month = 0; // what Python finds there, and complains about
        return true;
      }
      long monday = epochDay(year, 1, 1) - first + (first > 3 ? 7 : 0);
      long found = monday + (week - 1) * 7 + weekday - 1;
      java.time.LocalDate date = java.time.LocalDate.ofEpochDay(found);
      year = date.getYear();
      month = date.getMonthValue();
      day = date.getDayOfMonth();
      return true;
    }

    /** The time after the separator. */
    boolean time(int separator) {
      int first = at(separator);
      int width = first >= 0 ? 1 : (first & 0xF0) == 0xE0 ? 3 : (first & 0xF0) == 0xF0 ? 4 : 2;
      int from = separator + width;
      int zone = from;
      do {
        if (at(zone) == '+' || at(zone) == '-' || at(zone) == 'Z') {
          break;
        }
      } while (++zone < length);
      int found = clock(from, zone);
      hour = clock[0];
      minute = clock[1];
      second = clock[2];
      micros = clock[3];
      if (found < 0 || zone >= length) {
        return found == 0;
      }
      if (at(zone) == 'Z') {
        return at(zone + 1) == 0;
      }
      int sign = at(zone) == '-' ? -1 : 1;
      found = clock(zone + 1, length);
      offset = sign * ((clock[0] * 3600L + clock[1] * 60L + clock[2]) * 1_000_000L + clock[3]);
      return found == 0;
    }

    /** Negative if this is not a time; 1 if something follows the time; else 0. */
    private int clock(int from, int end) {
      clock = new int[4];
      at = from;
      boolean isSeparated = true;
      for (int part = 0; part < 3; part++) {
        clock[part] = digits(2);
        if (clock[part] < 0) {
          return -1;
        }
        int c = at(at++);
        if (part == 0) {
          isSeparated = c == ':';
        }
        if (at >= end) {
          return c == 0 ? 0 : 1;
        }
        if (c == '.' || c == ',') {
          break;
        }
        if (isSeparated && c != ':') {
          return -1;
        }
        at -= isSeparated ? 0 : 1;
      }
      int count = Math.min(end - at, 6);
      clock[3] = digits(count);
      if (clock[3] < 0) {
        return -1;
      }
      clock[3] *= count == 0 ? 0 : TENS[6 - count];
      while (isDigit(at)) {
        at++;
      }
      return at(at) == 0 ? 0 : 1;
    }

    void checkDate() throws PayloadException {
      if (year < 1 || year > 9999) {
        throw new PayloadException("year " + year + " is out of range");
      }
      if (month < 1 || month > 12) {
        throw new PayloadException("month must be in 1..12");
      }
      if (day < 1 || day > daysOf(year, month)) {
        throw new PayloadException("day is out of range for month");
      }
    }

    void checkTime() throws PayloadException {
      if (hour > 23) {
        throw new PayloadException("hour must be in 0..23");
      }
      if (minute > 59) {
        throw new PayloadException("minute must be in 0..59");
      }
      if (second > 59) {
        throw new PayloadException("second must be in 0..59");
      }
    }
  }
}
