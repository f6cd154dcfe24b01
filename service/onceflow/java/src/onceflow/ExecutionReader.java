package onceflow;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeStats;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.StreamingDeduplicateWithinWatermarkExec;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/** Reads what the last batch of a query did, in one call. */
public class ExecutionReader {
  /** Take one row after the other, and exchange none between tasks. What is not here may. */
  private static final List KEEPS_ORDER =
      Arrays.asList(
          new Object[] {
            "ArrowEvalPythonExec",
            "ArrowEvalPythonUDTFExec",
            "BatchEvalPythonExec",
            "BatchEvalPythonUDTFExec",
            "BroadcastExchangeExec",
            "BroadcastHashJoinExec",
            "BroadcastNestedLoopJoinExec",
            "CollectMetricsExec",
            "ColumnarToRowExec",
            "EmptyRelationExec",
            "EventTimeWatermarkExec",
            "FilterExec",
            "GenerateExec",
            "InputAdapter",
            "LocalTableScanExec",
            "MicroBatchScanExec",
            "OneRowRelationExec",
            "ProjectExec",
            "RangeExec",
            "RDDScanExec",
            "UnionExec",
            "WholeStageCodegenExec"
          });

  private final ObjectMapper json = new ObjectMapper();

  /**
   * Tells as JSON what a batch did.
   *
   * @param observed prefix of the names of observations, before the name of a source
   * @param steps the same, before the name of a processor
   */
  public String read(IncrementalExecution execution, String observed, String steps)
      throws Exception {
    SparkPlan plan = execution.executedPlan();
    Map deduplications = new LinkedHashMap();
    addDeduplications(plan, deduplications);
    Map found = new LinkedHashMap();
    found.put("event_watermark_ms", Long.valueOf(execution.offsetSeqMetadata().batchWatermarkMs()));
    found.put("batch_timestamp_ms", Long.valueOf(execution.offsetSeqMetadata().batchTimestampMs()));
    found.put("offsets", offsets(execution.logical()));
    found.put("counts", counts(execution, observed));
    found.put("step_rejects", texts(execution, steps));
    found.put("keeps_order", Boolean.valueOf(keepsOrder(plan)));
    found.put("executors", executors(execution.sparkSession()));
    found.put("late", Long.valueOf(sum(plan, "numRowsDroppedByWatermark")));
    found.put("state_rows", Long.valueOf(stateRows(plan)));
    found.put("deduplications", deduplications);
    found.put("newest_event_ms", newestEventTime(plan));
    return json.writeValueAsString(found);
  }

  /** Addresses, which those that are lost and started again do not share. */
  public String executors(SparkSession session) {
    scala.collection.Map all = session.sparkContext().getExecutorMemoryStatus();
    TreeSet found = new TreeSet();
    for (Iterator each = all.keysIterator(); each.hasNext(); ) {
      found.add(each.next());
    }
    return found.toString();
  }

  /** Whether rows of an input partition come out in its order. */
  public boolean keepsOrder(SparkPlan plan) {
    if (plan instanceof AdaptiveSparkPlanExec) {
      return keepsOrder(((AdaptiveSparkPlanExec) plan).executedPlan());
    }
    if (plan instanceof QueryStageExec) {
      return keepsOrder(((QueryStageExec) plan).plan());
    }
    boolean keeps = KEEPS_ORDER.contains(plan.getClass().getSimpleName());
    if (plan instanceof BroadcastExchangeExec) {
      keeps = !reads(plan); // a stream that is looked up follows the order of the other side
    }
    for (Iterator below = plan.children().iterator(); keeps && below.hasNext(); ) {
      keeps = keepsOrder((SparkPlan) below.next());
    }
    return keeps;
  }

  private boolean reads(SparkPlan plan) {
    boolean found = plan instanceof MicroBatchScanExec;
    for (Iterator below = plan.children().iterator(); !found && below.hasNext(); ) {
      found = reads((SparkPlan) below.next());
    }
    return found;
  }

  private List offsets(LogicalPlan plan) throws Exception {
    List found = new ArrayList();
    for (Iterator leaves = plan.collectLeaves().iterator(); leaves.hasNext(); ) {
      Object leaf = leaves.next();
      if (leaf instanceof StreamingDataSourceV2ScanRelation) {
        StreamingDataSourceV2ScanRelation scan = (StreamingDataSourceV2ScanRelation) leaf;
        Offset from = (Offset) scan.startOffset().get();
        Offset to = (Offset) scan.endOffset().get();
        found.add(
            Arrays.asList(new Object[] {json.readTree(from.json()), json.readTree(to.json())}));
      }
    }
    return found;
  }

  private Map counts(IncrementalExecution execution, String observed) {
    Map found = new LinkedHashMap();
    for (Iterator metrics = execution.observedMetrics().iterator(); metrics.hasNext(); ) {
      Tuple2 metric = (Tuple2) metrics.next();
      String name = (String) metric._1();
      if (name.startsWith(observed)) {
        Row row = (Row) metric._2();
        long[] counts = {row.getLong(0), row.getLong(1)};
        found.put(name.substring(observed.length()), counts);
      }
    }
    return found;
  }

  private Map texts(IncrementalExecution execution, String steps) {
    Map found = new LinkedHashMap();
    for (Iterator metrics = execution.observedMetrics().iterator(); metrics.hasNext(); ) {
      Tuple2 metric = (Tuple2) metrics.next();
      String name = (String) metric._1();
      if (name.startsWith(steps)) {
        found.put(name.substring(steps.length()), ((Row) metric._2()).getList(0));
      }
    }
    return found;
  }

  private long own(SparkPlan plan, String metric) {
    Option found = plan.metrics().get(metric);
    return found.isDefined() ? (Long) ((AccumulatorV2) found.get()).value() : 0L;
  }

  private long sum(SparkPlan plan, String metric) {
    long sum = own(plan, metric);
    for (Iterator children = plan.children().iterator(); children.hasNext(); ) {
      sum += sum((SparkPlan) children.next(), metric);
    }
    return sum;
  }

  /** Without the keys of sources' own deduplications: they hold no results back. */
  private long stateRows(SparkPlan plan) {
    long rows = deduplicated(plan) == null ? own(plan, "numTotalStateRows") : 0L;
    for (Iterator children = plan.children().iterator(); children.hasNext(); ) {
      rows += stateRows((SparkPlan) children.next());
    }
    return rows;
  }

  private void addDeduplications(SparkPlan plan, Map found) {
    String source = deduplicated(plan);
    if (source != null) {
      Option state = ((StreamingDeduplicateWithinWatermarkExec) plan).stateInfo();
      long operator = ((StatefulOperatorStateInfo) state.get()).operatorId();
      Map facts = new LinkedHashMap();
      facts.put("dropped", Long.valueOf(own(plan, "numDroppedDuplicateRows")));
      facts.put("operator_id", Long.valueOf(operator));
      found.put(source, facts);
    }
    for (Iterator children = plan.children().iterator(); children.hasNext(); ) {
      addDeduplications((SparkPlan) children.next(), found);
    }
  }

  /** The source whose deduplication it is; null for every other operator. */
  private String deduplicated(SparkPlan plan) {
    boolean drops = plan instanceof StreamingDeduplicateWithinWatermarkExec;
    return drops ? SourceMark.source(plan.output()) : null;
  }

  private Long newestEventTime(SparkPlan plan) {
    Long newest = null;
    if (plan instanceof EventTimeWatermarkExec) {
      EventTimeStats seen = ((EventTimeWatermarkExec) plan).eventTimeStats().value();
      newest = seen.count() > 0 ? seen.max() : null;
    }
    for (Iterator children = plan.children().iterator(); children.hasNext(); ) {
      Long below = newestEventTime((SparkPlan) children.next());
      newest = newest == null || (below != null && below > newest) ? below : newest;
    }
    return newest;
  }
}
