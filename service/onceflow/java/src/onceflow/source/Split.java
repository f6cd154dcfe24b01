package onceflow.source;

import java.io.Serializable;
import java.util.List;
import org.apache.kafka.common.TopicPartition;

/** A range of offsets, as `onceflow.contracts.source.Split`. */
final class Split implements Serializable {
  final TopicPartition place;
  final long start;
  final long end;

  /** Of the topic that the range was planned for; empty if any will do. */
  final String topicId;

  Split(List told) {
    place = new TopicPartition((String) told.get(0), ((Number) told.get(1)).intValue());
    start = ((Number) told.get(2)).longValue();
    end = ((Number) told.get(3)).longValue();
    topicId = (String) told.get(4);
  }
}
