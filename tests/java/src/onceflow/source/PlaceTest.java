package onceflow.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class PlaceTest {
  private static Chunk chunk(long next, long bytes) {
    return new Chunk(List.of(), next, bytes);
  }

  @Test
  void itCountsWhatWaits() {
    Place place = new Place("", 10);
    place.goTo(10);
    place.add(chunk(20, 100));
    place.add(chunk(30, 50));
    assertEquals("150 10 30", place.bytes + " " + place.head + " " + place.fetched);

    Chunk first = place.poll();
    assertEquals("50 20 30", place.bytes + " " + place.head + " " + place.fetched);

    place.putBack(first, 15);
    assertEquals("150 15 30", place.bytes + " " + place.head + " " + place.fetched);
    assertSame(first, place.poll());
  }

  @Test
  void whatLiesAheadIsNearAndWhatIsPastIsNot() {
    Place place = new Place("", 10);
    place.goTo(10);
    place.add(chunk(20, 100));

    assertTrue(place.isNear(10, 5));
    assertTrue(place.isNear(24, 5));
    assertFalse(place.isNear(25, 5));
    assertFalse(place.isNear(9, 5));

    place.poll();
    assertFalse(place.isNear(19, 5));
  }

  @Test
  void aJumpDropsWhatWaitsAndForgetsTheEndsOfTheLog() {
    Place place = new Place("", 10);
    place.add(chunk(20, 100));
    place.bounds = new long[] {0, 5};
    assertFalse(place.isNear(10, 5));

    place.goTo(100);

    assertTrue(place.chunks.isEmpty());
    assertTrue(place.isMoved);
    assertTrue(place.isNear(100, 5));
    assertEquals("0 100 100", place.bytes + " " + place.head + " " + place.fetched);
  }
}
