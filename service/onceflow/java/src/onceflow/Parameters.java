package onceflow;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.UUID;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import scala.Tuple2;
import scala.collection.Iterator;

/** Tells what the offsets say of the batch that this thread plans or runs, besides positions. */
public class Parameters {
  /** Local property of a thread while it analyses a query, for all of its batches. */
  private static final String ANALYSING = "onceflow.analysing";

  /** Returns a value as text; null if none is set. */
  public String value(String name) {
    JsonNode value = (JsonNode) ((JsonNode) told().path("values")).path(name);
    return value.isMissingNode() ? null : value.asText();
  }

  /** Returns what the offsets of the batch say of parameters, as JSON. */
  public String current() {
    return told().toString();
  }

  /** Returns what they say of references, as JSON. */
  public String references() {
    return part("references").toString();
  }

  private JsonNode told() {
    SparkSession session = (SparkSession) SparkSession.active();
    if (session.sparkContext().getLocalProperty(ANALYSING) != null) {
      throw new IllegalArgumentException(
          "parameter() cannot be what has to be known before the first batch, such as a type,"
              + " a width, or a row of VALUES");
    }
    return part("parameters");
  }

  /** Returns a part of the one offset that has it; an empty object if none does. */
  JsonNode part(String name) {
    ObjectMapper json = new ObjectMapper();
    SparkSession session = (SparkSession) SparkSession.active();
    String id = session.sparkContext().getLocalProperty(StreamExecution$.MODULE$.QUERY_ID_KEY());
    if (id == null) {
      return json.createObjectNode();
    }
    Object query = session.sharedState().activeStreamingQueries().get(UUID.fromString(id));
    Iterator each = ((StreamExecution) query).availableOffsets().iterator();
    while (each.hasNext()) {
      String offset = ((Offset) ((Tuple2) each.next())._2()).json();
      JsonNode found = part(json, offset, name);
      if (!found.isMissingNode()) {
        return found;
      }
    }
    return json.createObjectNode();
  }

  private JsonNode part(ObjectMapper json, String offset, String name) {
    try {
      return (JsonNode) json.readTree(offset).path(name);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException("an offset is not JSON: " + offset, error);
    }
  }
}
