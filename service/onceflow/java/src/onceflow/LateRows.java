package onceflow;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.Deduplicate;
import org.apache.spark.sql.catalyst.plans.logical.DeduplicateWithinWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.WatermarkSupport;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.types.BooleanType$;
import org.apache.spark.sql.types.LongType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType$;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Finds the rows of a batch that stateful operators dropped; `onceflow.runtime.batch.late`. */
public class LateRows {
  private static final String DELAY = "spark.watermarkDelayMs";
  private static final String CLOSES = "closes";
  private static final String PARTIAL = "partial_aggregates";
  private static final String LATE = "__is_late";
  private static final String WATERMARK = "__event_watermark_ms";
  private static final String MAY_BE_DUPLICATE = "__may_be_duplicate";

  /**
   * Frames of an origin, of whether it is late, of the watermark that tells so, and of whether it
   * may be a duplicate; one for each input of a lowest operator. Below those may be the operators
   * that drop duplicates of sources: what is late there has a frame of its own, and is in no other.
   */
  public List of(Object session, Object execution, Map frames, String origin) {
    List found = new ArrayList();
    IncrementalExecution ran = (IncrementalExecution) execution;
    Long watermarkMs = watermark(ran.executedPlan());
    if (watermarkMs != null) {
      inputs(
          (SparkSession) session, ran.analyzed(), frames, origin, watermarkMs.longValue(), found);
    }
    return found;
  }

  /** The highest: operators run after those below them. */
  private Long watermark(SparkPlan plan) {
    Long highest = null;
    if (plan instanceof StateStoreWriter && plan instanceof WatermarkSupport) {
      Option own = ((WatermarkSupport) plan).eventTimeWatermarkForLateEvents();
      highest = own.isDefined() ? (Long) own.get() : null;
    }
    for (Iterator children = plan.children().iterator(); children.hasNext(); ) {
      Long below = watermark((SparkPlan) children.next());
      if (below != null && (highest == null || below.longValue() > highest.longValue())) {
        highest = below;
      }
    }
    return highest;
  }

  /**
   * Whether every row of a stream has come by an operator that keeps state; adds what the lowest of
   * them read.
   */
  private boolean inputs(
      SparkSession session,
      LogicalPlan plan,
      Map frames,
      String origin,
      long watermarkMs,
      List found) {
    if (!plan.isStreaming()) {
      return true;
    }
    boolean haveAll = !plan.children().isEmpty();
    for (Iterator children = plan.children().iterator(); children.hasNext(); ) {
      LogicalPlan child = (LogicalPlan) children.next();
      boolean have = inputs(session, child, frames, origin, watermarkMs, found);
      LogicalPlan folded = foldedBelow(child);
      LogicalPlan rows = folded == null ? child : folded;
      Attribute time = null;
      if (!have && keepsState(plan)) {
        time = folded == null ? timeOf(plan, child) : named(folded.output(), CLOSES);
      }
      if (time != null) {
        found.add(marked(session, plan, rows, frames, origin, time, watermarkMs));
      }
      haveAll &= have || (keepsState(plan) && !dropsDuplicates(plan));
    }
    return haveAll;
  }

  /** The rows that were folded by partial aggregation before they came here; null if none were. */
  private LogicalPlan foldedBelow(LogicalPlan plan) {
    LogicalPlan below = plan;
    while (below instanceof Project) {
      below = ((Project) below).child();
    }
    if (!(below instanceof MapInArrow)) {
      return null;
    }
    Expression function = ((MapInArrow) below).functionExpr();
    boolean isOurs = function instanceof PythonUDF && ((PythonUDF) function).name().equals(PARTIAL);
    return isOurs ? ((MapInArrow) below).child() : null;
  }

  /** Of a source, and not of the query. */
  static boolean dropsDuplicates(LogicalPlan plan) {
    return plan instanceof DeduplicateWithinWatermark && SourceMark.column(plan.output()) != null;
  }

  static boolean keepsState(LogicalPlan plan) {
    return plan.isStreaming()
        && (plan instanceof Aggregate
            || plan instanceof Distinct
            || plan instanceof Deduplicate
            || plan instanceof DeduplicateWithinWatermark
            || plan instanceof Join
            || plan.getClass().getSimpleName().contains("WithState"));
  }

  private Attribute timeOf(LogicalPlan plan, LogicalPlan child) {
    Seq attributes = child.output();
    if (plan instanceof Aggregate) {
      attributes = ((Aggregate) plan).groupingExpressions();
    } else if (plan instanceof Deduplicate) {
      attributes = ((Deduplicate) plan).keys();
    }
    for (Iterator each = attributes.iterator(); each.hasNext(); ) {
      Object attribute = each.next();
      if (attribute instanceof Attribute && ((Attribute) attribute).metadata().contains(DELAY)) {
        return (Attribute) attribute;
      }
    }
    return null;
  }

  static Expression isBehind(Attribute time, long watermarkMs) {
    Expression end =
        time.dataType() instanceof StructType
            ? (Expression) new GetStructField(time, 1, Option.empty())
            : (Expression) time;
    Literal limit = new Literal(Long.valueOf(watermarkMs * 1000), TimestampType$.MODULE$);
    return new LessThanOrEqual(end, limit);
  }

  private Object marked(
      SparkSession session,
      LogicalPlan plan,
      LogicalPlan child,
      Map frames,
      String origin,
      Attribute time,
      long watermarkMs) {
    Expression isBehind = isBehind(time, watermarkMs);
    LogicalPlan again =
        (LogicalPlan)
            ((LogicalPlan) child.transformDown(new Cut(frames, origin)))
                .transformUp(new Rereading(frames, origin, watermarkMs));
    if (dropsDuplicates(plan)) {
      again = new Filter(isBehind, again);
    }
    List columns = new ArrayList();
    columns.add(named(again.output(), origin));
    columns.add(alias(isBehind, LATE, null));
    columns.add(alias(new Literal(Long.valueOf(watermarkMs), LongType$.MODULE$), WATERMARK, null));
    Boolean mayBeDuplicate = Boolean.valueOf(!dropsDuplicates(plan));
    columns.add(alias(new Literal(mayBeDuplicate, BooleanType$.MODULE$), MAY_BE_DUPLICATE, null));
    return Dataset$.MODULE$.ofRows(session, new Project(seq(columns), again));
  }

  static Attribute named(Seq output, String name) {
    for (Iterator each = output.iterator(); each.hasNext(); ) {
      Attribute attribute = (Attribute) each.next();
      if (attribute.name().equals(name)) {
        return attribute;
      }
    }
    return null;
  }

  static Alias alias(Expression expression, String name, Attribute as) {
    return new Alias(
        expression,
        name,
        as == null ? NamedExpression$.MODULE$.newExprId() : as.exprId(),
        as == null ? seq(new ArrayList()) : as.qualifier(),
        Option.empty(),
        seq(new ArrayList()));
  }

  static scala.collection.immutable.Seq seq(List items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  static LogicalPlan nothing(Seq output, Map frames, String origin) {
    // Any frame tells the type of an origin.
    Dataset frame = (Dataset) frames.values().iterator().next();
    Attribute model = named(frame.queryExecution().analyzed().output(), origin);
    List columns = new ArrayList(CollectionConverters.asJava(output));
    columns.add(model.newInstance());
    return new LocalRelation(seq(columns), seq(new ArrayList()), false, Option.empty());
  }

  /** Takes out operators below, which have been looked at by themselves. */
  public static class Cut extends AbstractPartialFunction {
    private final Map frames;
    private final String origin;

    public Cut(Map frames, String origin) {
      this.frames = frames;
      this.origin = origin;
    }

    public boolean isDefinedAt(Object plan) {
      return keepsState((LogicalPlan) plan) && !dropsDuplicates((LogicalPlan) plan);
    }

    public Object applyOrElse(Object plan, Function1 otherwise) {
      return isDefinedAt(plan)
          ? nothing(((LogicalPlan) plan).output(), frames, origin)
          : otherwise.apply(plan);
    }
  }

  /** Replaces the first reading by the second, and leads the origin up to the top. */
  public static class Rereading extends AbstractPartialFunction {
    private final Map frames;
    private final String origin;
    private final long watermarkMs;

    public Rereading(Map frames, String origin, long watermarkMs) {
      this.frames = frames;
      this.origin = origin;
      this.watermarkMs = watermarkMs;
    }

    public boolean isDefinedAt(Object plan) {
      return true;
    }

    public Object applyOrElse(Object plan, Function1 otherwise) {
      if (plan instanceof StreamingDataSourceV2ScanRelation) {
        StreamingDataSourceV2ScanRelation scan = (StreamingDataSourceV2ScanRelation) plan;
        Object offset = scan.endOffset().get();
        String json = ((Offset) offset).json();
        return leaf(scan.output(), (Dataset) frames.get(sourceOf(json)));
      }
      if (plan instanceof LocalRelation && ((LocalRelation) plan).isStreaming()) {
        // A source that had nothing new in this batch.
        return nothing(((LocalRelation) plan).output(), frames, origin);
      }
      if (dropsDuplicates((LogicalPlan) plan)) {
        LogicalPlan child = ((DeduplicateWithinWatermark) plan).child();
        return new Filter(
            new Not(isBehind(SourceMark.column(((LogicalPlan) plan).output()), watermarkMs)),
            child);
      }
      if (plan instanceof EventTimeWatermark) {
        return ((EventTimeWatermark) plan).child();
      }
      if (plan instanceof CollectMetrics) {
        return ((CollectMetrics) plan).child();
      }
      if (plan instanceof Project) {
        Project project = (Project) plan;
        Attribute passed = missing(project.output(), project.child());
        return passed == null
            ? project
            : new Project(with(project.projectList(), passed), project.child());
      }
      if (plan instanceof Expand) {
        Expand expand = (Expand) plan;
        Attribute passed = missing(expand.output(), expand.child());
        return passed == null
            ? expand
            : new Expand(
                eachWith(expand.projections(), passed),
                with(expand.output(), passed),
                expand.child());
      }
      return otherwise.apply(plan);
    }

    private Attribute missing(Seq output, LogicalPlan child) {
      return named(output, origin) == null ? named(child.output(), origin) : null;
    }

    private String sourceOf(String json) {
      try {
        return new ObjectMapper().readTree(json).get("source").asText();
      } catch (java.io.IOException error) {
        throw new IllegalStateException(json, error);
      }
    }

    private LogicalPlan leaf(Seq output, Dataset frame) {
      LogicalPlan again = frame.queryExecution().analyzed();
      List columns = new ArrayList();
      for (Iterator each = output.iterator(); each.hasNext(); ) {
        Attribute attribute = (Attribute) each.next();
        Attribute read = named(again.output(), attribute.name());
        columns.add(alias(read, attribute.name(), attribute));
      }
      columns.add(named(again.output(), origin));
      return new Project(seq(columns), again);
    }

    private scala.collection.immutable.Seq eachWith(Seq rows, Attribute passed) {
      List all = new ArrayList();
      for (Iterator each = rows.iterator(); each.hasNext(); ) {
        all.add(with((Seq) each.next(), passed));
      }
      return seq(all);
    }

    private scala.collection.immutable.Seq with(Seq columns, Attribute passed) {
      List all = new ArrayList(CollectionConverters.asJava(columns));
      all.add(passed);
      return seq(all);
    }
  }
}
