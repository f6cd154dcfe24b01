package onceflow.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.apache.spark.sql.connector.read.InputPartition;
import org.junit.jupiter.api.Test;

class TaskTest {
  @Test
  void tasksAreSplitsOrTicks() {
    InputPartition[] tasks =
        Task.all("[[[\"a\", 1, 2, 9000000000, \"id\"], [\"b\", 0, 3, 4, \"\"]], 1234567890123456]");

    assertEquals(2, tasks.length);
    Split first = ((Task) tasks[0]).splits[0];
    assertEquals("a-1 2 9000000000 id", text(first));
    assertEquals("b-0 3 4 ", text(((Task) tasks[0]).splits[1]));
    assertNull(((Task) tasks[0]).tick);
    assertEquals(1234567890123456L, ((Task) tasks[1]).tick);
    assertEquals(0, ((Task) tasks[1]).splits.length);
  }

  private static String text(Split split) {
    return split.place + " " + split.start + " " + split.end + " " + split.topicId;
  }
}
