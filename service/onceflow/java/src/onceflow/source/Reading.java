package onceflow.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.types.StructType;

/** How records are read: the same for all tasks of a source. Has secrets. */
final class Reading implements Serializable {
  /** Settings of Kafka's client. */
  final HashMap client;

  final String format;
  final String formatOptions;

  /** How long a range may make no progress. */
  final long patienceMs;

  /** Changes whenever a file changes that the client's settings name. */
  final String secretsDigest;

  final StructType schema;

  Reading(String told, StructType schema) {
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
  }
}
