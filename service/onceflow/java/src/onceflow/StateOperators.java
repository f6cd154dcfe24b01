package onceflow;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PreciseTimestampConversion;
import org.apache.spark.sql.catalyst.expressions.PrettyAttribute;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Partial$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode$;
import org.apache.spark.sql.execution.ExpandExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata;
import org.apache.spark.sql.execution.streaming.operators.stateful.BaseStreamingDeduplicateExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.SessionWindowStateStoreSaveExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreSaveExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.WatermarkPropagator$;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.unsafe.types.CalendarInterval;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Tells what the operators of a streaming query keep between batches, before it runs. */
public class StateOperators {
  private final Map definitions = new HashMap();
  private String viewOption;

  /**
   * Plans the query as Spark does for a batch, and gives its operators with state as JSON.
   *
   * @param viewOption option on the leaf of a stand-in that tells whose stand-in it is
   */
  public String list(SparkSession session, LogicalPlan query, OutputMode mode, String viewOption)
      throws Exception {
    this.viewOption = viewOption;
    OffsetSeqMetadata nothing =
        new OffsetSeqMetadata(0, 0, scala.collection.immutable.Map$.MODULE$.empty());
    Map found = new TreeMap();
    walk(plan(session, shown(query), mode, "unknown", nothing, false), found);
    return new ObjectMapper().writeValueAsString(new ArrayList(found.values()));
  }

  /**
   * Has Spark write what it writes of each operator before its first batch: metadata and schemas.
   *
   * @param session with the settings below
   * @param location folder of the state, with nothing of these operators
   * @param settings that the checkpoint pins
   */
  public void describe(
      SparkSession session, LogicalPlan query, OutputMode mode, String location, Map settings) {
    scala.collection.immutable.Map pinned =
        (scala.collection.immutable.Map)
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(settings));
    OffsetSeqMetadata metadata = new OffsetSeqMetadata(0, 0, pinned);
    plan(session, query, mode, location, metadata, true);
  }

  private SparkPlan plan(
      SparkSession session,
      LogicalPlan query,
      OutputMode mode,
      String location,
      OffsetSeqMetadata settings,
      boolean isFirst) {
    return new IncrementalExecution(
            session,
            query,
            mode,
            location,
            UUID.randomUUID(),
            UUID.randomUUID(),
            0, // in a later one, Spark demands state of before
            Option.empty(),
            settings,
            WatermarkPropagator$.MODULE$.noop(),
            isFirst,
            new scala.collection.mutable.HashMap(),
            new scala.collection.mutable.HashMap(),
            CommandExecutionMode$.MODULE$.ALL(),
            false)
        .executedPlan();
  }

  /** The plan with the columns of stand-ins in their leaves: as nulls, they would be left out. */
  private LogicalPlan shown(LogicalPlan plan) {
    boolean isStandIn =
        plan instanceof Project && ((Project) plan).child() instanceof StreamingRelationV2;
    if (isStandIn) {
      return leaf((StreamingRelationV2) ((Project) plan).child(), plan.output());
    }
    List children = new ArrayList();
    for (Iterator each = plan.children().iterator(); each.hasNext(); ) {
      children.add(shown((LogicalPlan) each.next()));
    }
    return (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(children).toSeq());
  }

  private LogicalPlan leaf(StreamingRelationV2 leaf, Seq columns) {
    for (Iterator each = columns.iterator(); each.hasNext(); ) {
      Attribute column = (Attribute) each.next();
      String name = leaf.extraOptions().get(viewOption) + "." + column.name();
      define(column, new PrettyAttribute(name, column.dataType()));
    }
    return leaf.copy(
        leaf.source(),
        leaf.sourceName(),
        leaf.table(),
        leaf.extraOptions(),
        columns.toList(),
        leaf.catalog(),
        leaf.identifier(),
        leaf.v1Relation(),
        leaf.sourceIdentifyingName());
  }

  private void walk(SparkPlan plan, Map found) {
    for (Iterator each = plan.children().iterator(); each.hasNext(); ) {
      walk((SparkPlan) each.next(), found);
    }
    for (Iterator each = plan.expressions().iterator(); each.hasNext(); ) {
      Object expression = each.next();
      if (expression instanceof Alias) {
        define((Alias) expression, ((Alias) expression).child());
      }
    }
    if (plan instanceof ExpandExec) {
      // A window for each row that it makes; all of them are of one kind.
      Seq first = (Seq) ((ExpandExec) plan).projections().head();
      for (int i = 0; i < first.size(); i++) {
        define((Attribute) plan.output().apply(i), (Expression) first.apply(i));
      }
    }
    if (plan instanceof StateStoreWriter) {
      long id = ((StateStoreWriter) plan).getStateInfo().operatorId();
      found.put(Long.valueOf(id), operator(id, plan));
    }
  }

  private void define(NamedExpression name, Expression definition) {
    boolean isItself =
        definition instanceof AttributeReference
            && ((AttributeReference) definition).exprId().equals(name.exprId());
    if (!isItself) {
      definitions.put(Long.valueOf(name.exprId().id()), definition);
    }
  }

  private Map operator(long id, SparkPlan plan) {
    Map found = new LinkedHashMap();
    found.put("operator", Long.valueOf(id));
    found.put("kind", ((StateStoreWriter) plan).shortName());
    List by = new ArrayList();
    List keys = new ArrayList();
    List values = new ArrayList();
    List computes = new ArrayList();
    if (plan instanceof StateStoreSaveExec) {
      StateStoreSaveExec save = (StateStoreSaveExec) plan;
      add(save.keyExpressions(), "", by, keys);
      addAggregates(save.child(), keys.size(), values, computes);
    } else if (plan instanceof SessionWindowStateStoreSaveExec) {
      SessionWindowStateStoreSaveExec save = (SessionWindowStateStoreSaveExec) plan;
      add(save.keyExpressions(), "", by, keys);
      by.add(text(save.sessionExpression()));
      addAggregates(save.child(), keys.size(), values, computes);
    } else if (plan instanceof StreamingSymmetricHashJoinExec) {
      StreamingSymmetricHashJoinExec join = (StreamingSymmetricHashJoinExec) plan;
      add(join.leftKeys(), "left ", by, keys);
      add(join.rightKeys(), "right ", by, keys);
      add(join.left().output(), "left ", computes, values);
      add(join.right().output(), "right ", computes, values);
      computes.add(join.joinType().sql());
    } else if (plan instanceof BaseStreamingDeduplicateExec) {
      add(((BaseStreamingDeduplicateExec) plan).keyExpressions(), "", by, keys);
    } else if (plan instanceof TransformWithStateInPySparkExec) {
      add(((TransformWithStateInPySparkExec) plan).groupingAttributes(), "", by, keys);
    }
    found.put("by", by);
    found.put("key", keys);
    found.put("computes", computes);
    found.put("value", values);
    return found;
  }

  /** What an aggregation keeps comes after its key. */
  private void addAggregates(SparkPlan plan, int keys, List values, List computes) {
    add((Seq) plan.output().drop(keys), "", new ArrayList(), values);
    SparkPlan below = plan;
    while (!isPartial(below) && below.children().size() == 1) {
      below = (SparkPlan) below.children().head();
    }
    if (isPartial(below)) {
      Seq all = ((BaseAggregateExec) below).aggregateExpressions();
      for (Iterator each = all.iterator(); each.hasNext(); ) {
        AggregateExpression aggregate = (AggregateExpression) each.next();
        boolean isAll = aggregate.filter().isEmpty();
        String filter = isAll ? "" : " WHERE " + text((Expression) aggregate.filter().get());
        computes.add(text(aggregate.aggregateFunction()) + filter);
      }
    }
  }

  /** Whether it is what sees the rows. Those above merge, and do not know the filters. */
  private boolean isPartial(SparkPlan plan) {
    if (!(plan instanceof BaseAggregateExec)) {
      return false;
    }
    Seq all = ((BaseAggregateExec) plan).aggregateExpressions();
    return all.isEmpty() || ((AggregateExpression) all.head()).mode() instanceof Partial$;
  }

  private void add(Seq expressions, String side, List texts, List columns) {
    for (Iterator each = expressions.iterator(); each.hasNext(); ) {
      Expression expression = (Expression) each.next();
      boolean isNamed = expression instanceof NamedExpression;
      String name = isNamed ? ((NamedExpression) expression).name() : expression.prettyName();
      columns.add(side + name + " " + expression.dataType().catalogString());
      texts.add(side + text(expression));
    }
  }

  /** An expression over columns of views, as SQL has it, or nearly. */
  private String text(Expression expression) {
    return resolved(expression).sql();
  }

  private Expression resolved(Expression expression) {
    if (expression instanceof PrettyAttribute) {
      return expression;
    }
    if (expression instanceof Attribute) {
      Attribute attribute = (Attribute) expression;
      Expression is = (Expression) definitions.get(Long.valueOf(attribute.exprId().id()));
      if (is == null) {
        return new PrettyAttribute(attribute.name(), attribute.dataType());
      }
      Set parts = new LinkedHashSet();
      boolean isWindow = addParts(is, parts);
      return isWindow
          ? new PrettyAttribute("window(" + String.join(", ", parts) + ")", is.dataType())
          : resolved(is);
    }
    List children = new ArrayList();
    for (Iterator each = expression.children().iterator(); each.hasNext(); ) {
      children.add(resolved((Expression) each.next()));
    }
    return (Expression) expression.withNewChildren(CollectionConverters.asScala(children).toSeq());
  }

  /** Spark spells a window out, in microseconds. */
  private boolean addParts(Expression of, Set parts) {
    boolean isWindow = of instanceof PreciseTimestampConversion;
    if (of instanceof Attribute) {
      parts.add(text(of));
    } else if (of instanceof Literal) {
      Object value = ((Literal) of).value();
      if (value instanceof CalendarInterval) {
        value = Long.valueOf(((CalendarInterval) value).microseconds);
      }
      if (value instanceof Long && ((Long) value).longValue() != 0) {
        Duration length = Duration.of(((Long) value).longValue(), ChronoUnit.MICROS);
        parts.add(length.toString().substring(2).toLowerCase(Locale.ROOT));
      }
    }
    for (Iterator each = of.children().iterator(); each.hasNext(); ) {
      isWindow |= addParts((Expression) each.next(), parts);
    }
    return isWindow;
  }
}
