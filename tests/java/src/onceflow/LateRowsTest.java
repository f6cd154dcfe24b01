package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.logical.DeduplicateWithinWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType$;
import org.junit.jupiter.api.Test;

class LateRowsTest {
  private static final long WATERMARK_MS = 60_000;

  private final Attribute ad = Plans.column("ad");

  @Test
  void operatorsOfAStreamKeepState() {
    assertTrue(LateRows.keepsState(new Distinct(Plans.stream(ad))));
    LogicalPlan other = Plans.stream(Plans.column("owner"));
    assertTrue(LateRows.keepsState(Plans.join(Plans.stream(ad), other, Inner$.MODULE$)));
  }

  @Test
  void tablesAndProjectionsKeepNone() {
    assertFalse(LateRows.keepsState(new Distinct(Plans.table(ad))));
    assertFalse(LateRows.keepsState(new Project(Plans.seq(ad), Plans.stream(ad))));
  }

  @Test
  void onlyTheDeduplicationOfASourceDropsItsDuplicates() {
    Attribute marked = Plans.marked("_time", "clicks");

    assertTrue(LateRows.dropsDuplicates(deduplicated(Plans.stream(ad, marked))));
    assertFalse(LateRows.dropsDuplicates(deduplicated(Plans.stream(ad))));
    assertFalse(LateRows.dropsDuplicates(new Distinct(Plans.stream(ad, marked))));
  }

  private LogicalPlan deduplicated(LogicalPlan child) {
    return new DeduplicateWithinWatermark(Plans.seq(ad), child);
  }

  @Test
  void aTimeIsLateUpToTheWatermark() {
    assertTrue(isLate(TimestampType$.MODULE$, WATERMARK_MS * 1_000));
    assertFalse(isLate(TimestampType$.MODULE$, WATERMARK_MS * 1_000 + 1));
  }

  @Test
  void aWindowIsLateWhenItsEndIs() {
    StructType window =
        new StructType().add("start", TimestampType$.MODULE$).add("end", TimestampType$.MODULE$);

    assertTrue(isLate(window, row(0L, WATERMARK_MS * 1_000)));
    assertFalse(isLate(window, row(0L, WATERMARK_MS * 1_000 + 1)));
  }

  private static boolean isLate(DataType type, Object value) {
    Attribute time = Plans.column("_time", type, Metadata.empty());
    Expression bound =
        BindReferences.bindReference(
            LateRows.isBehind(time, WATERMARK_MS),
            package$.MODULE$.AttributeSeq(Plans.seq(time)),
            false);
    return (Boolean) bound.eval(row(value));
  }

  private static InternalRow row(Object... values) {
    return new GenericInternalRow(values);
  }

  @Test
  void columnsAreFoundByName() {
    assertEquals(ad, LateRows.named(Plans.seq(Plans.column("owner"), ad), "ad"));
  }
}
