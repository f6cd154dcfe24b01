"""What Spark really ran, read from inside `foreachBatch` after the one action of the batch.

Not the offset log: on a `file:` checkpoint another driver may have replaced the entry since Spark
planned the batch from it, and `head` must tell what was read, not what was to be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from onceflow.contracts.source import TICK_COLUMN, Position
from onceflow.errors import require
from onceflow.pipeline.duplicates import SOURCE_KEY
from onceflow.pipeline.java_code import load_classes, new_instance
from onceflow.pipeline.plan import jvm_of
from onceflow.pipeline.rejects import REASON_COLUMN

_OBSERVED = "onceflow."
"""Before the name of a source: what Spark calls its count of records."""
_SHIELD = "onceflow-view."
"""Before the name of a source: an observation of its view that nobody reads."""
_SOURCE = r"""
package onceflow;

import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
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
import org.apache.spark.sql.execution.streaming.operators.stateful
    .StreamingDeduplicateWithinWatermarkExec;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

public class ExecutionReader {
  /** Take one row after the other, and exchange none between tasks. What is not here may. */
  private static final List KEEPS_ORDER = Arrays.asList(new Object[] {
      "ArrowEvalPythonExec", "ArrowEvalPythonUDTFExec", "BatchEvalPythonExec",
      "BatchEvalPythonUDTFExec", "BroadcastExchangeExec", "BroadcastHashJoinExec",
      "BroadcastNestedLoopJoinExec", "CollectMetricsExec", "ColumnarToRowExec",
      "EmptyRelationExec", "EventTimeWatermarkExec", "FilterExec", "GenerateExec", "InputAdapter",
      "LocalTableScanExec", "MicroBatchScanExec", "OneRowRelationExec", "ProjectExec", "RangeExec",
      "RDDScanExec", "UnionExec", "WholeStageCodegenExec"});

  /** Facts as JSON; offsets are JSON already. */
  public String read(IncrementalExecution execution, String observed) {
    return "{\"event_watermark_ms\":" + execution.offsetSeqMetadata().batchWatermarkMs()
        + ",\"batch_timestamp_ms\":" + execution.offsetSeqMetadata().batchTimestampMs()
        + ",\"offsets\":[" + offsets(execution.logical())
        + "],\"counts\":{" + counts(execution, observed)
        + "},\"keeps_order\":" + keepsOrder(execution.executedPlan())
        + ",\"executors\":\"" + executors(execution.sparkSession())
        + "\",\"late\":" + sum(execution.executedPlan(), "numRowsDroppedByWatermark")
        + ",\"state_rows\":" + stateRows(execution.executedPlan())
        + ",\"deduplications\":{" + deduplications(execution.executedPlan()) + "}"
        + ",\"newest_event_ms\":" + newestEventTime(execution.executedPlan()) + "}";
  }

  /** Addresses, which those that are lost and started anew do not share. */
  public String executors(SparkSession session) {
    scala.collection.Map all = session.sparkContext().getExecutorMemoryStatus();
    TreeSet found = new TreeSet();
    for (Iterator each = all.keysIterator(); each.hasNext();) {
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
      keeps = !reads(plan);  // a stream that is looked up follows the order of the other side
    }
    for (Iterator below = plan.children().iterator(); keeps && below.hasNext();) {
      keeps = keepsOrder((SparkPlan) below.next());
    }
    return keeps;
  }

  private boolean reads(SparkPlan plan) {
    boolean found = plan instanceof MicroBatchScanExec;
    for (Iterator below = plan.children().iterator(); !found && below.hasNext();) {
      found = reads((SparkPlan) below.next());
    }
    return found;
  }

  private String offsets(LogicalPlan plan) {
    StringBuilder found = new StringBuilder();
    for (Iterator leaves = plan.collectLeaves().iterator(); leaves.hasNext();) {
      Object leaf = leaves.next();
      if (leaf instanceof StreamingDataSourceV2ScanRelation) {
        StreamingDataSourceV2ScanRelation scan = (StreamingDataSourceV2ScanRelation) leaf;
        String range = "[" + json(scan.startOffset()) + "," + json(scan.endOffset()) + "]";
        found.append(found.length() == 0 ? "" : ",").append(range);
      }
    }
    return found.toString();
  }

  private String json(Option offset) {
    return ((Offset) offset.get()).json();
  }

  private String counts(IncrementalExecution execution, String observed) {
    StringBuilder found = new StringBuilder();
    for (Iterator metrics = execution.observedMetrics().iterator(); metrics.hasNext();) {
      Tuple2 metric = (Tuple2) metrics.next();
      String name = (String) metric._1();
      if (name.startsWith(observed)) {
        Row row = (Row) metric._2();
        found.append(found.length() == 0 ? "\"" : ",\"").append(name.substring(observed.length()))
            .append("\":[" + row.getLong(0) + "," + row.getLong(1) + "]");
      }
    }
    return found.toString();
  }

  private long own(SparkPlan plan, String metric) {
    Option found = plan.metrics().get(metric);
    return found.isDefined() ? (Long) ((AccumulatorV2) found.get()).value() : 0L;
  }

  private long sum(SparkPlan plan, String metric) {
    long sum = own(plan, metric);
    for (Iterator children = plan.children().iterator(); children.hasNext();) {
      sum += sum((SparkPlan) children.next(), metric);
    }
    return sum;
  }

  /** Without the keys of sources' own deduplications, which nobody waits for. */
  private long stateRows(SparkPlan plan) {
    long rows = deduplicated(plan) == null ? own(plan, "numTotalStateRows") : 0L;
    for (Iterator children = plan.children().iterator(); children.hasNext();) {
      rows += stateRows((SparkPlan) children.next());
    }
    return rows;
  }

  private String deduplications(SparkPlan plan) {
    StringBuilder found = new StringBuilder();
    String source = deduplicated(plan);
    if (source != null) {
      Option state = ((StreamingDeduplicateWithinWatermarkExec) plan).stateInfo();
      found.append("\"" + source + "\":{\"dropped\":" + own(plan, "numDroppedDuplicateRows")
          + ",\"operator_id\":" + ((StatefulOperatorStateInfo) state.get()).operatorId() + "}");
    }
    for (Iterator children = plan.children().iterator(); children.hasNext();) {
      String below = deduplications((SparkPlan) children.next());
      found.append(found.length() > 0 && !below.isEmpty() ? "," : "").append(below);
    }
    return found.toString();
  }

  /** The source whose deduplication it is; null for every other operator. */
  private String deduplicated(SparkPlan plan) {
    if (plan instanceof StreamingDeduplicateWithinWatermarkExec) {
      for (Iterator each = plan.output().iterator(); each.hasNext();) {
        Attribute attribute = (Attribute) each.next();
        if (attribute.metadata().contains("$SOURCE_KEY")) {
          return attribute.metadata().getString("$SOURCE_KEY");
        }
      }
    }
    return null;
  }

  private Long newestEventTime(SparkPlan plan) {
    Long newest = null;
    if (plan instanceof EventTimeWatermarkExec) {
      EventTimeStats seen = ((EventTimeWatermarkExec) plan).eventTimeStats().value();
      newest = seen.count() > 0 ? seen.max() : null;
    }
    for (Iterator children = plan.children().iterator(); children.hasNext();) {
      Long below = newestEventTime((SparkPlan) children.next());
      newest = newest == null || (below != null && below > newest) ? below : newest;
    }
    return newest;
  }
}
""".replace("$SOURCE_KEY", SOURCE_KEY)


@dataclass(frozen=True)
class Deduplication:
    """What a source's operator that drops duplicates did in a batch.

    Args:
        dropped: duplicates.
        operator_id: under which Spark keeps its state.
    """

    dropped: int
    operator_id: int


@dataclass(frozen=True)
class Execution:
    """One run of a batch's plan.

    Args:
        event_watermark_ms: Spark's watermark that it ran under.
        batch_timestamp_ms: its clock.
        positions: source -> (start, end) that it read. A source that had nothing new is missing:
            Spark leaves it out of the plan.
        counts: source -> records that it delivered, and how many of them were rejected.
        late: rows that stateful operators dropped behind the event watermark. Aggregations count
            them after having put those of one key and task together.
        state_rows: that stateful operators hold after it, but for keys of sources' duplicates.
        newest_event_ms: newest event time of all rows, ticks among them; None if none had any.
        deduplications: source -> what became of its duplicates, for each that looks for them.
        keeps_order: whether rows of an input partition came out in its order.
        is_doubtful: whether `counts` may hold records twice. What was computed for a shuffle and
            lost with an executor is computed again, and Spark counts it again.
    """

    event_watermark_ms: int
    batch_timestamp_ms: int
    positions: Mapping[str, tuple[Position, Position]]
    counts: Mapping[str, tuple[int, int]]
    late: int
    state_rows: int = 0
    newest_event_ms: int | None = None
    deduplications: Mapping[str, Deduplication] = field(default_factory=dict)
    keeps_order: bool = False
    is_doubtful: bool = False

    def newest_since(self, before_ms: int | None) -> int | None:
        """The newest event time of this batch and what was before it."""
        known = [at for at in (before_ms, self.newest_event_ms) if at is not None]
        return max(known, default=None)

    @property
    def read(self) -> int:
        """Records of all sources."""
        return sum(read for read, _ in self.counts.values())

    @property
    def rejected(self) -> int:
        """How many of them no query saw."""
        return sum(rejected for _, rejected in self.counts.values())

    @property
    def duplicates(self) -> int:
        """How many of them were duplicates."""
        return sum(each.dropped for each in self.deduplications.values())


def observed(marked: DataFrame, source: str) -> DataFrame:
    """Count the records of a source as they are read, and those that have a reason to be rejected.

    Spark moves no filter below an observation, so that all of them are counted.
    """
    is_record = F.col(TICK_COLUMN).isNull() if TICK_COLUMN in marked.columns else F.lit(True)
    columns = (
        F.count(F.when(is_record, 1)).alias("read"),
        F.count(F.col(REASON_COLUMN)).alias("rejected"),
    )
    return marked.observe(_OBSERVED + source, *columns)


def records_of(metrics: Mapping[str, Any]) -> Mapping[str, int]:
    """Source -> records that it delivered, by what Spark's progress of a batch observed."""
    return {
        name.removeprefix(_OBSERVED): row.read
        for name, row in metrics.items()
        # A query may observe under any name.
        if name.startswith(_OBSERVED) and "read" in row
    }


def shielded(source: str, view: DataFrame) -> DataFrame:
    """Keep filters of the query above the event watermark of a view.

    Spark would let them through, and records that the query does not want would no longer move
    event time, nor would ticks. It lets none through an observation.
    """
    return view.observe(_SHIELD + source, F.count(F.lit(1)))


class ExecutionReader:
    """Looks at the last execution of a query.

    Each look at a node from Python is a round trip, and another to forget it, so the walk through
    the plan is done by Java code, in one call.

    Args:
        spark: session of the query.
        source_names: of the sources that the query reads.
    """

    def __init__(self, spark: SparkSession, source_names: Sequence[str]) -> None:
        jvm = jvm_of(spark)
        self._source_count = len(source_names)
        self._reader = new_instance(jvm, load_classes(jvm, _SOURCE), "onceflow.ExecutionReader")
        self._executors: str = self._reader.executors(spark._jsparkSession)  # noqa: SLF001

    def read(self, query: StreamingQuery) -> Execution:
        """For use inside `foreachBatch`, after the action.

        Observed metrics are exact and cost no further pass; late rows are counted by the stateful
        operators themselves (`StateStoreWriter.numRowsDroppedByWatermark`).
        """
        execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001  no public way
        found = json.loads(self._reader.read(execution, _OBSERVED))
        counts = {name: tuple(pair) for name, pair in found["counts"].items()}
        require(
            len(counts) == self._source_count,
            "every source is observed",
            found=f"{len(counts)} of {self._source_count}",
        )
        before, self._executors = self._executors, found["executors"]
        return Execution(
            event_watermark_ms=found["event_watermark_ms"],
            batch_timestamp_ms=found["batch_timestamp_ms"],
            positions={
                end["source"]: (start["position"], end["position"])
                for start, end in found["offsets"]
            },
            counts=counts,
            late=found["late"],
            state_rows=found["state_rows"],
            newest_event_ms=found["newest_event_ms"],
            deduplications={
                name: Deduplication(**facts) for name, facts in found["deduplications"].items()
            },
            keeps_order=found["keeps_order"],
            is_doubtful=before != self._executors,
        )
