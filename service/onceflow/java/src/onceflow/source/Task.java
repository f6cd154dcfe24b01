package onceflow.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** Ranges that one task reads, one after the other; or a tick, which is a row without a record. */
final class Task implements InputPartition {
  final Split[] splits;

  /** Event time in microseconds; null if the task has splits. */
  final Long tick;

  private Task(Split[] splits, Long tick) {
    this.splits = splits;
    this.tick = tick;
  }

  /**
   * The tasks in a JSON list.
   *
   * @param told for each a list of splits, `[topic, partition, start, end, topic id]`, or a number
   */
  static InputPartition[] all(String told) {
    List list;
    try {
      list = (List) new ObjectMapper().readValue(told, List.class);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
    InputPartition[] tasks = new InputPartition[list.size()];
    for (int at = 0; at < tasks.length; at++) {
      tasks[at] = of(list.get(at));
    }
    return tasks;
  }

  private static Task of(Object told) {
    if (told instanceof Number) {
      return new Task(new Split[0], Long.valueOf(((Number) told).longValue()));
    }
    List ranges = (List) told;
    Split[] splits = new Split[ranges.size()];
    for (int at = 0; at < splits.length; at++) {
      splits[at] = new Split((List) ranges.get(at));
    }
    return new Task(splits, null);
  }
}
