package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.junit.jupiter.api.Test;

class RowGuardTest {
  private final Attribute ad = Plans.column("ad");
  private final LogicalPlan table = Plans.table(ad);
  private final Join join = Plans.join(table, Plans.table(Plans.column("owner")), Inner$.MODULE$);
  private final Filter example = new Filter(Literal$.MODULE$.TrueLiteral(), table);
  private final RowGuard guard = new RowGuard().with(example);

  @Test
  void rowsAreCountedAboveAJoin() {
    Project guarded = (Project) guard.apply(new Project(Plans.seq(ad), join));

    Filter filter = (Filter) guarded.child();
    assertSame(example.condition(), filter.condition());
    assertEquals(join, filter.child());
  }

  @Test
  void eachOfSeveralJoinsIsGuarded() {
    Join above = Plans.join(join, Plans.table(Plans.column("price")), Inner$.MODULE$);

    Filter outer = (Filter) guard.apply(above);

    assertEquals(new Filter(example.condition(), join), ((Join) outer.child()).left());
  }

  @Test
  void joinsThatOnlyDropRowsNeedNone() {
    LogicalPlan semi = Plans.join(table, Plans.table(Plans.column("a")), LeftSemi$.MODULE$);
    LogicalPlan anti = Plans.join(table, Plans.table(Plans.column("b")), LeftAnti$.MODULE$);

    assertSame(semi, guard.apply(semi));
    assertSame(anti, guard.apply(anti));
  }

  @Test
  void aGuardedPlanStaysAsItIs() {
    LogicalPlan guarded = (LogicalPlan) guard.apply(join);

    assertSame(guarded, guard.apply(guarded));
  }
}
