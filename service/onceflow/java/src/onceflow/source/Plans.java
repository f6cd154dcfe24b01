package onceflow.source;

import java.util.concurrent.ConcurrentHashMap;

/** Objects of Python that plan, by name, from when they are made until a table has them. */
public final class Plans {
  private static final ConcurrentHashMap PLANS = new ConcurrentHashMap();

  private Plans() {}

  public static void put(String name, Plan plan) {
    PLANS.put(name, plan);
  }

  public static void remove(String name) {
    PLANS.remove(name);
  }

  /** Null if no name is given. */
  static Plan find(String name) {
    return name == null ? null : (Plan) PLANS.get(name);
  }
}
