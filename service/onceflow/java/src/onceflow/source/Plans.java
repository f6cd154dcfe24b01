package onceflow.source;

import java.util.concurrent.ConcurrentHashMap;

/** Objects of Python that plan, by the name that Spark's options have for them. */
public final class Plans {
  private static final ConcurrentHashMap PLANS = new ConcurrentHashMap();

  private Plans() {}

  public static void put(String name, Plan plan) {
    PLANS.put(name, plan);
  }

  public static void remove(String name) {
    PLANS.remove(name);
  }

  static Plan get(String name) {
    Plan plan = (Plan) PLANS.get(name);
    if (plan == null) {
      throw new SourceException("InvariantError", "nothing plans the source " + name);
    }
    return plan;
  }
}
