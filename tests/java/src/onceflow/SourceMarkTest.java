package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.junit.jupiter.api.Test;

class SourceMarkTest {
  @Test
  void theMarkedColumnNamesTheSource() {
    Attribute marked = Plans.marked("_id", "clicks");

    assertSame(marked, SourceMark.column(Plans.seq(Plans.column("ad"), marked)));
    assertEquals("clicks", SourceMark.source(Plans.seq(Plans.column("ad"), marked)));
  }

  @Test
  void noMarkNoSource() {
    assertNull(SourceMark.column(Plans.seq(Plans.column("ad"))));
    assertNull(SourceMark.source(Plans.seq()));
  }
}
