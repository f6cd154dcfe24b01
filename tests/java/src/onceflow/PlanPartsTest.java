package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PlanPartsTest {
  @ParameterizedTest
  @ValueSource(
      strings = {
        "SELECT hidden(a) FROM t",
        "WITH w AS (SELECT hidden(a) FROM t) SELECT * FROM w",
        "SELECT (SELECT hidden(a) FROM t)",
        "SELECT * FROM t WHERE a IN (SELECT hidden(a) FROM u)",
        "SELECT sum(a) OVER (PARTITION BY hidden(b)) FROM t",
        "SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY hidden(b))",
        "SELECT * FROM t JOIN u ON hidden(t.a) = u.a",
        "SELECT a FROM t GROUP BY a HAVING hidden(a) > 1",
        "SELECT * FROM t LATERAL VIEW hidden(a) x AS y",
        "SELECT transform(a, x -> hidden(x)) FROM t",
      })
  void noPlaceIsLeftOut(String sql) throws Exception {
    boolean isFound = false;
    for (JsonNode part : parts(sql)) {
      isFound |= part.get("strings").toString().contains("hidden");
    }
    assertTrue(isFound, () -> sql);
  }

  @Test
  void eachPartNamesTheOneThatHoldsIt() throws Exception {
    List<JsonNode> parts = parts("SELECT 1 + 2 AS three");

    for (int place = 0; place < parts.size(); place++) {
      int parent = parts.get(place).get("parent").asInt();
      assertTrue(parent < place);
      int depth = parent < 0 ? 0 : parts.get(parent).get("depth").asInt() + 1;
      assertEquals(depth, parts.get(place).get("depth").asInt());
    }
    assertEquals(List.of(1.0, 2.0), numbers(parts));
  }

  @Test
  void longTextsAreCutOff() throws Exception {
    List<JsonNode> parts = parts("SELECT '" + "x".repeat(5_000) + "'");

    List<Integer> lengths = new ArrayList<>();
    for (JsonNode part : parts) {
      if (part.hasNonNull("literal")) {
        lengths.add(part.get("literal").asText().length());
      }
    }
    assertEquals(List.of(1_000), lengths);
  }

  @Test
  void intervalsAreMicrosecondsWithShortMonths() throws Exception {
    double day = 86_400_000_000.0;

    assertEquals(List.of(28 * day), numbers(parts("SELECT INTERVAL 1 MONTH")));
    assertEquals(List.of(2 * day), numbers(parts("SELECT INTERVAL 2 DAY")));
  }

  private static List<JsonNode> parts(String sql) throws Exception {
    String json = new PlanParts().list(CatalystSqlParser$.MODULE$.parsePlan(sql));
    List<JsonNode> parts = new ArrayList<>();
    new ObjectMapper().readTree(json).forEach(parts::add);
    return parts;
  }

  private static List<Double> numbers(List<JsonNode> parts) {
    List<Double> found = new ArrayList<>();
    for (JsonNode part : parts) {
      if (part.hasNonNull("number")) {
        found.add(part.get("number").asDouble());
      }
    }
    return found;
  }
}
