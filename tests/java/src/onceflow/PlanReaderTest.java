package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Rand;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.logical.DeduplicateWithinWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.junit.jupiter.api.Test;
import scala.Option;

class PlanReaderTest {
  private final Attribute ad = Plans.column("ad");

  @Test
  void operatorsAndExpressionsAreDescribed() throws Exception {
    LogicalPlan join =
        Plans.join(Plans.stream(ad), Plans.table(Plans.column("owner")), LeftOuter$.MODULE$);

    JsonNode read = read(new Project(Plans.seq(ad), join));

    assertEquals("Project", read.get("kind").asText());
    assertTrue(read.get("is_streaming").asBoolean());
    assertEquals("ad", read.at("/output/0/name").asText());
    assertEquals(ad.exprId().id(), read.at("/output/0/id").asLong());
    assertEquals("bigint", read.at("/output/0/type").asText());
    assertEquals("LEFT OUTER", read.at("/children/0/join").asText());
    assertTrue(read.at("/children/0/children/0/is_streaming").asBoolean());
    assertFalse(read.at("/children/0/children/1/is_streaming").asBoolean());
  }

  @Test
  void whatIsNotDeterministicIsNamed() throws Exception {
    Alias guess =
        new Alias(
            new Rand(Literal$.MODULE$.TrueLiteral(), true),
            "guess",
            ad.exprId(),
            Plans.seq(),
            Option.empty(),
            Plans.seq());

    JsonNode read = read(new Project(Plans.seq(guess), Plans.table(ad)));

    JsonNode rand = read.at("/expressions/0/children/0");
    assertEquals("Rand", rand.get("kind").asText());
    assertFalse(rand.get("is_deterministic").asBoolean(true));
  }

  @Test
  void theDeduplicationOfASourceNamesIt() throws Exception {
    Attribute marked = Plans.marked("_time", "clicks");
    LogicalPlan own = new DeduplicateWithinWatermark(Plans.seq(ad), Plans.stream(ad, marked));
    LogicalPlan users = new DeduplicateWithinWatermark(Plans.seq(ad), Plans.stream(ad));

    assertEquals("clicks", read(own).get("deduplicates").asText());
    assertEquals("", read(users).get("deduplicates").asText());
  }

  private static JsonNode read(LogicalPlan plan) throws Exception {
    return new ObjectMapper().readTree(new PlanReader().read(plan, "onceflow-view"));
  }
}
