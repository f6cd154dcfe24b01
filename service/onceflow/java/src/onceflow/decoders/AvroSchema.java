package onceflow.decoders;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads a schema, and finds the types that it names. */
final class AvroSchema {
  private static final List PRIMITIVES =
      Arrays.asList(
          new Object[] {"null", "boolean", "int", "long", "float", "double", "bytes", "string"});
  private static final int[] KINDS = {
    AvroType.NULL,
    AvroType.BOOLEAN,
    AvroType.NUMBER,
    AvroType.NUMBER,
    AvroType.FLOAT,
    AvroType.DOUBLE,
    AvroType.BYTES,
    AvroType.STRING
  };

  /** Other logical types are values of the type that they annotate. */
  private static final List LOGICAL =
      Arrays.asList(
          new Object[] {
            "int date",
            "int time-millis",
            "long time-micros",
            "long timestamp-millis",
            "long timestamp-micros",
            "long local-timestamp-millis",
            "long local-timestamp-micros",
            "bytes decimal",
            "string uuid"
          });

  private static final int[] LOGICAL_KINDS = {
    AvroType.DATE,
    AvroType.TIME_MILLIS,
    AvroType.TIME_MICROS,
    AvroType.MILLIS,
    AvroType.MICROS,
    AvroType.LOCAL_MILLIS,
    AvroType.LOCAL_MICROS,
    AvroType.DECIMAL,
    AvroType.UUID
  };

  private final Map named = new HashMap();

  private AvroSchema() {}

  /**
   * The record that the text describes.
   *
   * @throws IllegalArgumentException it describes none
   */
  static AvroType parse(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    AvroType type;
    try {
      type = new AvroSchema().type(JsonTree.parse(bytes, 0, bytes.length), "");
    } catch (PayloadException error) {
      throw wrong(error.getMessage());
    }
    if (type.kind != AvroType.RECORD) {
      throw wrong("another type");
    }
    return type;
  }

  private static IllegalArgumentException wrong(String found) {
    return new IllegalArgumentException(
        "unreadable Avro schema; expected JSON text of a record schema; found " + found);
  }

  private AvroType type(Object told, String namespace) {
    if (told instanceof List) {
      return union((List) told, namespace);
    }
    if (told instanceof Map) {
      return described((Map) told, namespace);
    }
    if (!(told instanceof String)) {
      throw wrong("the type " + Texts.shown(told));
    }
    int primitive = PRIMITIVES.indexOf(told);
    if (primitive >= 0) {
      return new AvroType(KINDS[primitive]);
    }
    String name = (String) told;
    String full = name.indexOf('.') < 0 && !namespace.isEmpty() ? namespace + "." + name : name;
    AvroType type = (AvroType) named.get(full);
    if (type == null) {
      throw wrong("the unknown type " + full);
    }
    return type;
  }

  private AvroType union(List branches, String namespace) {
    AvroType union = new AvroType(AvroType.UNION);
    union.parts = new AvroType[branches.size()];
    for (int at = 0; at < union.parts.length; at++) {
      union.parts[at] = type(branches.get(at), namespace);
    }
    return union;
  }

  private AvroType described(Map told, String namespace) {
    Object kind = told.get("type");
    if ("array".equals(kind) || "map".equals(kind)) {
      boolean isArray = "array".equals(kind);
      AvroType type = new AvroType(isArray ? AvroType.ARRAY : AvroType.MAP);
      Object part = needed(told, isArray ? "items" : "values", Object.class);
      type.parts = new AvroType[] {type(part, namespace)};
      return type;
    }
    if ("record".equals(kind) || "error".equals(kind)) {
      return record(told, namespace);
    }
    if ("enum".equals(kind)) {
      AvroType type = new AvroType(AvroType.ENUM);
      type.names = texts((List) needed(told, "symbols", List.class));
      define(type, told, namespace);
      return type;
    }
    if ("fixed".equals(kind)) {
      boolean isDecimal = "decimal".equals(told.get("logicalType"));
      AvroType type = new AvroType(isDecimal ? AvroType.DECIMAL : AvroType.FIXED);
      type.size = natural(needed(told, "size", BigInteger.class), "size");
      setDigits(type, told);
      define(type, told, namespace);
      return type;
    }
    int primitive = PRIMITIVES.indexOf(kind);
    if (primitive < 0) {
      throw wrong("the type " + Texts.shown(kind));
    }
    int logical = LOGICAL.indexOf(kind + " " + told.get("logicalType"));
    AvroType type = new AvroType(logical < 0 ? KINDS[primitive] : LOGICAL_KINDS[logical]);
    setDigits(type, told);
    return type;
  }

  private AvroType record(Map told, String namespace) {
    AvroType record = new AvroType(AvroType.RECORD);
    String full = define(record, told, namespace);
    String inside = full.substring(0, Math.max(0, full.lastIndexOf('.')));
    List fields = told.get("fields") == null ? Arrays.asList(new Object[0]) : list(told, "fields");
    record.names = new String[fields.size()];
    record.parts = new AvroType[fields.size()];
    for (int at = 0; at < fields.size(); at++) {
      if (!(fields.get(at) instanceof Map)) {
        throw wrong("the field " + Texts.shown(fields.get(at)));
      }
      Map field = (Map) fields.get(at);
      record.names[at] = (String) needed(field, "name", String.class);
      record.parts[at] = type(needed(field, "type", Object.class), inside);
    }
    return record;
  }

  /** Gives a type its name, which is returned in full. */
  private String define(AvroType type, Map told, String namespace) {
    String full = (String) needed(told, "name", String.class);
    Object own = told.containsKey("namespace") ? told.get("namespace") : namespace;
    if (full.indexOf('.') < 0 && own instanceof String && !((String) own).isEmpty()) {
      full = own + "." + full;
    }
    if (named.put(full, type) != null) {
      throw wrong("two types " + full);
    }
    return full;
  }

  private static void setDigits(AvroType type, Map told) {
    if (type.kind != AvroType.DECIMAL) {
      return;
    }
    if (told.get("precision") != null) {
      type.precision = natural(told.get("precision"), "precision");
    }
    if (told.get("scale") != null) {
      type.scale = natural(told.get("scale"), "scale");
    }
  }

  private static int natural(Object told, String name) {
    if (told instanceof BigInteger
        && ((BigInteger) told).signum() >= 0
        && ((BigInteger) told).bitLength() < 32) {
      return ((BigInteger) told).intValue();
    }
    throw wrong("the " + name + " " + Texts.shown(told));
  }

  private static Object needed(Map told, String name, Class kind) {
    Object found = told.get(name);
    if (!kind.isInstance(found)) {
      throw wrong(
          found == null
              ? "no `" + name + "` in " + Texts.shown(told)
              : "the " + name + " " + Texts.shown(found));
    }
    return found;
  }

  private static List list(Map told, String name) {
    return (List) needed(told, name, List.class);
  }

  private static String[] texts(List told) {
    String[] texts = new String[told.size()];
    for (int at = 0; at < texts.length; at++) {
      if (!(told.get(at) instanceof String)
          || !((String) told.get(at)).matches("[A-Za-z_][A-Za-z0-9_]*")) {
        throw wrong("the symbol " + Texts.shown(told.get(at)));
      }
      texts[at] = (String) told.get(at);
    }
    return texts;
  }
}
