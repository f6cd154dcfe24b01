package onceflow;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Product;
import scala.collection.Iterator;

/**
 * Lists every operator and expression of a plan, parsed or analysed, whatever field holds it.
 *
 * <p>Spark's own ways to walk a plan leave some out, such as those below WITH or WINDOW.
 */
public class PlanParts {
  private static final int MAX_TEXT = 1000;
  private static final long DAY_MICROS = 86_400_000_000L;
  private static final long LEAST_MONTH_DAYS = 28L;

  private final List parts = new ArrayList();
  private final ArrayDeque waiting = new ArrayDeque();

  /** Returns a JSON array; each part names the one that holds it by its place in the array. */
  public String list(TreeNode root) throws Exception {
    waiting.push(new Object[] {root, Integer.valueOf(-1), Integer.valueOf(0)});
    while (!waiting.isEmpty()) {
      Object[] next = (Object[]) waiting.pop();
      add((TreeNode) next[0], ((Integer) next[1]).intValue(), ((Integer) next[2]).intValue());
    }
    return new ObjectMapper().writeValueAsString(parts);
  }

  private void add(TreeNode node, int parent, int depth) {
    Map part = new LinkedHashMap();
    part.put("kind", kind(node));
    part.put("parent", Integer.valueOf(parent));
    part.put("depth", Integer.valueOf(depth));
    part.put("is_operator", Boolean.valueOf(node instanceof LogicalPlan));
    if (node instanceof Expression) {
      describe((Expression) node, part);
    }
    List strings = new ArrayList();
    Map options = new LinkedHashMap();
    List below = new ArrayList();
    if (node instanceof InheritAnalysisRules) {
      // Its other field is what it is replaced by.
      collect(((InheritAnalysisRules) node).parameters(), strings, options, below);
    } else {
      for (Iterator fields = node.productIterator(); fields.hasNext(); ) {
        collect(fields.next(), strings, options, below);
      }
    }
    part.put("strings", strings);
    part.put("options", options);
    int place = parts.size();
    parts.add(part);
    for (int i = below.size() - 1; i >= 0; i--) {
      waiting.push(new Object[] {below.get(i), Integer.valueOf(place), Integer.valueOf(depth + 1)});
    }
  }

  private void collect(Object field, List strings, Map options, List below) {
    if (field instanceof TreeNode) {
      below.add(field);
    } else if (field instanceof String || field instanceof UTF8String) {
      strings.add(field.toString());
    } else if (field instanceof Map) {
      options.putAll((Map) field);
    } else if (field instanceof scala.collection.Map) {
      for (Iterator each = ((scala.collection.Map) field).iterator(); each.hasNext(); ) {
        scala.Tuple2 entry = (scala.Tuple2) each.next();
        if (entry._2() instanceof String) {
          options.put(String.valueOf(entry._1()), entry._2());
        } else {
          collect(entry._2(), strings, options, below);
        }
      }
    } else if (field instanceof DataType) {
      return;
    } else if (field instanceof scala.collection.Iterable) {
      for (Iterator each = ((scala.collection.Iterable) field).iterator(); each.hasNext(); ) {
        collect(each.next(), strings, options, below);
      }
    } else if (field instanceof Product) {
      for (Iterator each = ((Product) field).productIterator(); each.hasNext(); ) {
        collect(each.next(), strings, options, below);
      }
    }
  }

  private void describe(Expression expression, Map part) {
    part.put("name", expression.prettyName());
    if (expression instanceof Literal) {
      Literal literal = (Literal) expression;
      if (literal.dataType() instanceof StringType && literal.value() != null) {
        part.put("literal", shortened(literal.value().toString()));
      } else if (isTime(literal.dataType())) {
        part.put("written", written(literal.origin()));
      }
    }
    if (expression instanceof Literal) {
      part.put("number", numberOf(((Literal) expression).value(), expression.dataType()));
    }
    String moment = momentOf(expression);
    if (moment != null) {
      part.put("moment", shortened(moment));
    }
  }

  /** A number; of times and intervals, microseconds, with short months; null for anything else. */
  private Number numberOf(Object value, DataType type) {
    if (value instanceof CalendarInterval) {
      CalendarInterval interval = (CalendarInterval) value;
      long days = interval.months * LEAST_MONTH_DAYS + interval.days;
      return Double.valueOf((double) days * DAY_MICROS + interval.microseconds);
    }
    if (value instanceof Decimal) {
      return Double.valueOf(((Decimal) value).toDouble());
    }
    if (!(value instanceof Number)) {
      return null;
    }
    double number = ((Number) value).doubleValue();
    if (type instanceof DateType) {
      return Double.valueOf(number * DAY_MICROS);
    }
    if (type instanceof YearMonthIntervalType) {
      return Double.valueOf(number * LEAST_MONTH_DAYS * DAY_MICROS);
    }
    return Double.isNaN(number) || Double.isInfinite(number)
        ? null
        : (Number) Double.valueOf(number);
  }

  /** Text that Spark will read as a moment when it runs the query. */
  private String momentOf(Expression expression) {
    try {
      if (expression instanceof Cast && isTime(expression.dataType())) {
        Expression child = ((Cast) expression).child();
        if (child.foldable() && child.dataType() instanceof StringType) {
          return String.valueOf(child.eval(null));
        }
      }
      if (expression instanceof RuntimeReplaceable) {
        return momentBelow(((RuntimeReplaceable) expression).replacement());
      }
    } catch (Exception error) { // it is not resolved, or its value is an error
      return null;
    }
    return null;
  }

  private String momentBelow(Expression expression) {
    String found = momentOf(expression);
    for (Iterator each = expression.children().iterator(); each.hasNext() && found == null; ) {
      found = momentBelow((Expression) each.next());
    }
    return found;
  }

  private boolean isTime(DataType type) {
    return type instanceof DateType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType;
  }

  private String written(Origin origin) {
    if (origin.sqlText().isEmpty() || origin.startIndex().isEmpty()) {
      return "";
    }
    int from = ((Integer) origin.startIndex().get()).intValue();
    int to = ((Integer) origin.stopIndex().get()).intValue();
    return shortened(((String) origin.sqlText().get()).substring(from, to + 1));
  }

  private String kind(Object node) {
    Class found = node.getClass();
    while (found.isAnonymousClass()) { // as those of IS UNKNOWN
      found = found.getSuperclass();
    }
    String name = found.getName();
    // A class of another package may have the name of one of Spark's.
    String kind = name.startsWith("org.apache.spark.") ? found.getSimpleName() : name;
    return kind.endsWith("$") ? kind.substring(0, kind.length() - 1) : kind;
  }

  private String shortened(String text) {
    return text.length() <= MAX_TEXT ? text : text.substring(0, MAX_TEXT);
  }
}
