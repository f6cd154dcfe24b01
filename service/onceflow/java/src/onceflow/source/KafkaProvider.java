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
 * <p>Options: `plan` names an object of Python that plans, `reading_secret` is a `Reading`, and
 * `start` and `end` are offsets. The columns are given.
 */
public final class KafkaProvider implements TableProvider {
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    throw new UnsupportedOperationException("the columns are given");
  }

  public boolean supportsExternalMetadata() {
    return true;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new Topics(schema);
  }

  private static final class Topics implements Table, SupportsRead {
    private final StructType schema;

    Topics(StructType schema) {
      this.schema = schema;
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
      return new TopicsScan(schema, options);
    }
  }

  private static final class TopicsScan implements ScanBuilder, Scan, Batch {
    private final StructType schema;
    private final CaseInsensitiveStringMap options;

    TopicsScan(StructType schema, CaseInsensitiveStringMap options) {
      this.schema = schema;
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
      return new PlannedStream(plan(), createReaderFactory());
    }

    public Batch toBatch() {
      return this;
    }

    public InputPartition[] planInputPartitions() {
      Plan plan = plan();
      try {
        return Task.all(plan.tasks(options.get("start"), options.get("end")));
      } finally {
        plan.stop();
      }
    }

    public PartitionReaderFactory createReaderFactory() {
      return new ReaderFactory(new Reading(options.get("reading_secret"), schema));
    }

    private Plan plan() {
      return Plans.get(options.get("plan"));
    }
  }
}
