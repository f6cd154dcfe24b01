package onceflow.source;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Topics of Kafka as a table of Spark, as a stream or as what lies between two offsets.
 *
 * <p>Options: `reading_secret` is a `Reading`. For a stream, `plan` names an object of Python that
 * plans, while its frame is made; else `tasks` are those of `Task`. The columns are given.
 */
public final class KafkaProvider implements TableProvider {
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    throw new UnsupportedOperationException("the columns are given");
  }

  public boolean supportsExternalMetadata() {
    return true;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new Topics(schema, Plans.find((String) properties.get("plan")));
  }

  private static final class Topics implements Table, SupportsRead {
    private final StructType schema;

    /** Null if this is not a stream. */
    private final Plan plan;

    Topics(StructType schema, Plan plan) {
      this.schema = schema;
      this.plan = plan;
    }

    public String name() {
      return "kafka";
    }

    @SuppressWarnings("deprecation")
    public StructType schema() {
      return schema;
    }

    public Set capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new TopicsScan(schema, plan, options);
    }
  }

  private static final class TopicsScan implements ScanBuilder, Scan, Batch {
    private final StructType schema;
    private final Plan plan;
    private final CaseInsensitiveStringMap options;

    TopicsScan(StructType schema, Plan plan, CaseInsensitiveStringMap options) {
      this.schema = schema;
      this.plan = plan;
      this.options = options;
    }

    public Scan build() {
      return this;
    }

    public StructType readSchema() {
      return schema;
    }

    public String description() {
      return "kafka";
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      // Each stream has a checkpoint of its own, in which it goes on after a restart.
      return new PlannedStream(plan, readers(checkpoint));
    }

    public Batch toBatch() {
      return this;
    }

    public InputPartition[] planInputPartitions() {
      return Task.all(options.get("tasks"));
    }

    public PartitionReaderFactory createReaderFactory() {
      return readers("");
    }

    private PartitionReaderFactory readers(String stream) {
      return new ReaderFactory(new Reading(options.get("reading_secret"), schema, stream));
    }
  }
}
