package onceflow.decoders;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/** CSV payloads: one row in each record, quoted as in RFC 4180, without a header. */
final class CsvDecoder extends Decoder {
  private static final int START = 0;
  private static final int PLAIN = 1;
  private static final int QUOTED = 2;
  private static final int AFTER_QUOTE = 3;
  private static final int AFTER_ROW = 4;

  private final int fields;

  /** For each column, which field of a row it is. */
  private final int[] places;

  private final int delimiter;

  CsvDecoder(StructType schema, WritableColumnVector[] vectors, Map options) {
    super(schema, vectors);
    List names = (List) options.get("columns");
    names = names == null || names.isEmpty() ? Arrays.asList((Object[]) row.names) : names;
    fields = names.size();
    places = new int[vectors.length];
    for (int column = 0; column < places.length; column++) {
      String name = row.names[column];
      places[column] = names.lastIndexOf(name);
      if (places[column] < 0) {
        throw new IllegalArgumentException(
            "columns that the rows do not have: "
                + name
                + "; expected some of "
                + String.join(", ", names));
      }
      if (row.parts[column].kind >= Column.ARRAY) {
        throw new IllegalArgumentException(
            "CSV has no nested columns: " + name + "; expected scalar types");
      }
    }
    String written = (String) options.get("delimiter");
    delimiter = (written == null ? "," : written).codePointAt(0);
  }

  void read(byte[] bytes, int from, int to, int at) throws PayloadException {
    if (bytes == null) {
      throw new PayloadException("the record has no payload");
    }
    Utf8.check(bytes, from, to);
    List found = split(new String(bytes, from, to - from, StandardCharsets.UTF_8));
    if (found.size() != fields) {
      throw new PayloadException("expected " + fields + " fields, found " + found.size());
    }
    for (int column = 0; column < places.length; column++) {
      String text = (String) found.get(places[column]);
      if (text.isEmpty()) {
        vectors[column].putNull(at);
      } else {
        Scalars.write(text, row.parts[column], vectors[column], at);
      }
    }
  }

  /** The fields of the one row that the text is, as Python's reader finds them. */
  private List split(String text) throws PayloadException {
    List found = new ArrayList(fields);
    StringBuilder field = new StringBuilder();
    int state = START;
    for (int at = 0; at < text.length(); ) {
      int c = text.codePointAt(at);
      at += Character.charCount(c);
      boolean isEnd = c == '\n' || c == '\r';
      if (state == AFTER_ROW) {
        if (!isEnd) {
          throw new PayloadException(
              "new-line character seen in unquoted field - do you need to open the file in"
                  + " universal-newline mode?");
        }
      } else if (state == QUOTED) {
        if (c == '"') {
          state = AFTER_QUOTE;
        } else {
          field.appendCodePoint(c);
        }
      } else if (state == AFTER_QUOTE && c == '"') {
        field.append('"');
        state = QUOTED;
      } else if (isEnd) {
        boolean isBlank = state == START && found.isEmpty();
        if (!isBlank) {
          save(field, found);
        }
        state = AFTER_ROW;
      } else if (state == START && c == '"') {
        state = QUOTED;
      } else if (c == delimiter) {
        save(field, found);
        state = START;
      } else if (state == AFTER_QUOTE) {
        String expected = new String(Character.toChars(delimiter));
        throw new PayloadException("'" + expected + "' expected after '\"'");
      } else {
        field.appendCodePoint(c);
        state = PLAIN;
      }
    }
    if (state == QUOTED) {
      throw new PayloadException("unexpected end of data");
    }
    if (state != AFTER_ROW && !text.isEmpty()) {
      save(field, found);
    }
    return found;
  }

  private static void save(StringBuilder field, List found) {
    found.add(field.toString());
    field.setLength(0);
  }
}
