package onceflow;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.junit.jupiter.api.Test;
import scala.Option;

class ExecutionReaderTest {
  private final Attribute ad = Plans.column("ad");
  private final SparkPlan rows = new LocalTableScanExec(Plans.seq(ad), Plans.seq(), Option.empty());
  private final ExecutionReader reader = new ExecutionReader();

  @Test
  void stepsThatTakeOneRowAfterTheOtherKeepTheOrder() {
    SparkPlan filtered = new FilterExec(Literal$.MODULE$.TrueLiteral(), rows);

    assertTrue(reader.keepsOrder(new ProjectExec(Plans.seq(ad), filtered)));
  }

  @Test
  void aStepThatIsNotListedMayChangeIt() {
    SparkPlan sorted = new SortExec(Plans.seq(), false, rows, 0);

    assertFalse(reader.keepsOrder(new ProjectExec(Plans.seq(ad), sorted)));
  }
}
