package onceflow;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import scala.collection.Iterator;
import scala.collection.Seq;

/** Finds the column by which the view of a source names it, where its duplicates are dropped. */
public class SourceMark {
  /** Also in `onceflow.pipeline.file.duplicates`, which marks the column. */
  public static final String KEY = "onceflow.source";

  /** Returns the marked column of an operator's output; null if there is none. */
  public static Attribute column(Seq output) {
    for (Iterator each = output.iterator(); each.hasNext(); ) {
      Attribute attribute = (Attribute) each.next();
      if (attribute.metadata().contains(KEY)) {
        return attribute;
      }
    }
    return null;
  }

  /** Returns the name of the source; null if no column is marked. */
  public static String source(Seq output) {
    Attribute marked = column(output);
    return marked == null ? null : marked.metadata().getString(KEY);
  }
}
