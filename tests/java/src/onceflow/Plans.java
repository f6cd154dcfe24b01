package onceflow;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.LongType$;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Small plans of Spark, made without a session. */
final class Plans {
  private Plans() {}

  @SafeVarargs
  @SuppressWarnings("varargs")
  static <T> Seq<T> seq(T... items) {
    return CollectionConverters.asScala(List.of(items)).toSeq();
  }

  static AttributeReference column(String name) {
    return column(name, LongType$.MODULE$, Metadata.empty());
  }

  static AttributeReference column(String name, DataType type, Metadata metadata) {
    return new AttributeReference(
        name, type, true, metadata, NamedExpression$.MODULE$.newExprId(), seq());
  }

  /** A column that names a source, as `onceflow.pipeline.file.duplicates` marks it. */
  static AttributeReference marked(String name, String source) {
    Metadata mark = new MetadataBuilder().putString("onceflow.source", source).build();
    return column(name, LongType$.MODULE$, mark);
  }

  static LogicalPlan table(Attribute... columns) {
    return new LocalRelation(seq(columns), seq(), false, Option.empty());
  }

  static LogicalPlan stream(Attribute... columns) {
    return new LocalRelation(seq(columns), seq(), true, Option.empty());
  }

  static Join join(LogicalPlan left, LogicalPlan right, JoinType type) {
    return new Join(
        left, right, type, Option.empty(), new JoinHint(Option.empty(), Option.empty()));
  }
}
