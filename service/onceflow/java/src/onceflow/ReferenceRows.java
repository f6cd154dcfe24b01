package onceflow;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** The rows of a reference, in the version of the batch that this thread plans. */
public class ReferenceRows {
  // The form by which errors of our own are found in Spark's: runtime/spark/errors.py.
  private static final String CHANGED =
      "; nothing of it was written; undo the change, run it `--until caught-up`, then change it";

  private final String name;
  private final StructType schema;
  private final String folder;
  private final String unset;
  private String version;
  private RDD rows;

  ReferenceRows(String name, StructType schema, String folder, String unset) {
    this.name = name;
    this.schema = schema;
    this.folder = folder;
    this.unset = unset;
  }

  String name() {
    return name;
  }

  public String toString() {
    return name;
  }

  /**
   * The rows as a leaf of a plan.
   *
   * <p>They are kept in the block managers as long as batches have them: with 100,000 rows, a
   * relation that holds them itself is sent to a task in each batch, which takes a second.
   */
  synchronized LogicalPlan ofBatch(Seq columns) {
    SparkSession session = (SparkSession) SparkSession.active();
    String wanted = wanted();
    if (rows == null || !wanted.equals(version)) {
      Seq read = wanted.isEmpty() ? LateRows.seq(new ArrayList()) : decoded(content(wanted));
      if (rows != null) {
        rows.unpersist(false);
      }
      ClassTag kind = ClassTag$.MODULE$.apply(InternalRow.class);
      rows = session.sparkContext().parallelize(read, 1, kind).persist();
      version = wanted;
    }
    return new LogicalRDD(
        columns,
        rows,
        new UnknownPartitioning(1),
        LateRows.seq(new ArrayList()),
        false,
        Option.empty(),
        session,
        Option.empty(),
        Option.empty());
  }

  private String wanted() {
    JsonNode told = (JsonNode) new Parameters().part("references").path(name);
    String wanted = ((JsonNode) told.path("rows")).asText(unset);
    // In no stream, only the plan is looked at.
    if (wanted.isEmpty() && isStream()) {
      throw new IllegalStateException(
          "onceflow.errors.ConfigError: a batch that was planned before has no version of a"
              + (" reference: " + name + CHANGED));
    }
    return wanted;
  }

  private static boolean isStream() {
    String id = StreamExecution$.MODULE$.QUERY_ID_KEY();
    return ((SparkSession) SparkSession.active()).sparkContext().getLocalProperty(id) != null;
  }

  private byte[] content(String wanted) {
    Path file = new Path(folder, wanted + ".arrow");
    String found = "no such file";
    try {
      SparkSession session = (SparkSession) SparkSession.active();
      FileSystem files = file.getFileSystem(session.sessionState().newHadoopConf());
      FSDataInputStream in = files.open(file);
      try {
        byte[] content = in.readAllBytes();
        if (digest(content).equals(wanted)) {
          return content;
        }
        found = "other content";
      } finally {
        in.close();
      }
    } catch (FileNotFoundException error) {
      found = "no such file";
    } catch (IOException error) {
      found = error.getClass().getName();
    }
    throw new IllegalStateException(
        "onceflow.errors.CorruptionError: the kept version of a reference is missing or damaged"
            + (": " + file + ": expected the rows of " + name + " in the batch that is planned")
            + ("; found " + found + "; halting; restore the file from a backup"));
  }

  private static String digest(byte[] content) {
    try {
      StringBuilder text = new StringBuilder();
      for (byte each : MessageDigest.getInstance("SHA-256").digest(content)) {
        text.append(String.format("%02x", new Object[] {Byte.valueOf(each)}));
      }
      return text.toString();
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);
    }
  }

  private void check(StructType kept) {
    boolean isSame = kept.size() >= schema.size();
    for (int at = 0; isSame && at < schema.size(); at++) {
      StructField one = schema.fields()[at];
      StructField other = kept.fields()[at];
      isSame = one.name().equals(other.name()) && one.dataType().sameType(other.dataType());
    }
    if (!isSame) {
      throw new IllegalStateException(
          "onceflow.errors.ConfigError: a batch that was planned before has other columns of a"
              + (" reference: " + name + CHANGED));
    }
  }

  /** What is kept besides the columns comes after them, and is left out. */
  private Seq decoded(byte[] content) {
    List found = new ArrayList();
    BufferAllocator memory =
        ArrowUtils$.MODULE$.rootAllocator().newChildAllocator(name, 0L, Long.MAX_VALUE);
    UnsafeProjection projection = (UnsafeProjection) UnsafeProjection$.MODULE$.create(schema);
    try {
      ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(content), memory);
      try {
        VectorSchemaRoot root = reader.getVectorSchemaRoot();
        check(ArrowUtils$.MODULE$.fromArrowSchema(root.getSchema()));
        while (reader.loadNextBatch()) {
          ColumnVector[] columns = new ColumnVector[schema.size()];
          for (int at = 0; at < columns.length; at++) {
            columns[at] = new ArrowColumnVector((FieldVector) root.getFieldVectors().get(at));
          }
          Iterator each = new ColumnarBatch(columns, root.getRowCount()).rowIterator();
          while (each.hasNext()) {
            found.add(projection.apply((InternalRow) each.next()).copy());
          }
        }
      } finally {
        reader.close();
      }
    } catch (IOException error) {
      throw new IllegalStateException("the kept rows of " + name + " cannot be read", error);
    } finally {
      memory.close();
    }
    return LateRows.seq(found);
  }
}
