package onceflow.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import onceflow.decoders.Decoder;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;

/** How records are read: the same for all tasks of a source. Has secrets. */
final class Reading implements Serializable {
  static final String REJECT = "_reject";

  /** Settings of Kafka's client. */
  final HashMap client;

  final String format;
  final String formatOptions;

  /** How long a range may make no progress. */
  final long patienceMs;

  /** Changes whenever a file changes that the client's settings name. */
  final String secretsDigest;

  final StructType schema;

  /** Names the stream, which goes on where it ended; empty if this is none. */
  final String stream;

  /** The columns that come from payloads. */
  final StructType payload;

  /** Refuses options of the format, and columns, that do not fit. */
  Reading(String told, StructType schema, String stream) {
    Map json;
    try {
      json = (Map) new ObjectMapper().readValue(told, Map.class);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
    client = new HashMap((Map) json.get("client"));
    format = (String) json.get("format");
    formatOptions = (String) json.get("format_options");
    patienceMs = ((Number) json.get("patience_ms")).longValue();
    secretsDigest = (String) json.get("secrets_digest");
    this.schema = schema;
    this.stream = stream;
    StructType decoded = new StructType();
    for (int at = 0; at < schema.fields().length; at++) {
      if (isDecoded(schema.fields()[at].name())) {
        decoded = decoded.add(schema.fields()[at]);
      }
    }
    payload = decoded;
    try {
      decoder(OnHeapColumnVector.allocateColumns(1, payload));
    } catch (IllegalArgumentException error) {
      throw new SourceException("ConfigError", error.getMessage(), error);
    }
  }

  static boolean isDecoded(String name) {
    return !name.equals(REJECT) && !MetaColumns.has(name);
  }

  /** Null if no column comes from payloads. */
  Decoder decoder(WritableColumnVector[] columns) {
    return columns.length == 0 ? null : Decoder.of(format, formatOptions, payload, columns);
  }
}
