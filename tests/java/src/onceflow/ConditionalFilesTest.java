package onceflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ConditionalFilesTest {
  private static final Path ENTRY = new Path("store:///offsets/7");

  private ConditionalFiles files;

  @BeforeEach
  void openStore() {
    Store.calls.clear();
    Store.knowsConditions = true;
    Store.isTaken = false;
    Configuration settings = new Configuration(false);
    settings.setClass("fs.store.impl", Store.class, RawLocalFileSystem.class);
    settings.setBoolean("fs.store.impl.disable.cache", true);
    files = new ConditionalFiles(new Path("store:///"), settings);
  }

  @Test
  void aNewFileIsRefusedByTheStoreIfItIsThere() throws Exception {
    files.createAtomic(ENTRY, false).close();

    assertEquals(List.of("create only if new", "close"), Store.calls);
  }

  @Test
  void aFileThatMayBeReplacedIsNot() throws Exception {
    files.createAtomic(ENTRY, true).close();

    assertEquals(List.of("create, replacing", "close"), Store.calls);
  }

  @Test
  void aStoreWithoutConditionsLooksFirst() throws Exception {
    Store.knowsConditions = false;

    files.createAtomic(ENTRY, false).close();

    assertEquals(List.of("create", "close"), Store.calls);
  }

  @Test
  void aFileThatAnotherDriverWroteIsToldAsSparkExpectsIt() {
    Store.isTaken = true;
    CancellableFSDataOutputStream stream = files.createAtomic(ENTRY, false);

    IOException told = assertThrows(FileAlreadyExistsException.class, stream::close);

    assertSame(RemoteFileChangedException.class, told.getCause().getClass());
  }

  @Test
  void aCancelledFileIsNeverWritten() throws Exception {
    CancellableFSDataOutputStream stream = files.createAtomic(ENTRY, false);

    stream.cancel();
    stream.close();

    assertTrue(Store.calls.contains("abort"));
    assertFalse(Store.calls.contains("close"));
  }

  @Test
  void aFileIsClosedOnce() throws Exception {
    CancellableFSDataOutputStream stream = files.createAtomic(ENTRY, false);

    stream.close();
    stream.close();
    stream.cancel();

    assertEquals(List.of("create only if new", "close"), Store.calls);
  }

  /** Notes what it is asked for; keeps nothing. */
  public static class Store extends RawLocalFileSystem {
    static final List<String> calls = new ArrayList<>();
    static boolean knowsConditions;
    static boolean isTaken;

    @Override
    public String getScheme() {
      return "store";
    }

    @Override
    public void checkPath(Path path) {}

    @Override
    public boolean hasPathCapability(Path path, String capability) {
      return knowsConditions && capability.equals("fs.option.create.conditional.overwrite");
    }

    @Override
    public FSDataOutputStream create(Path path, boolean mayReplace) throws IOException {
      calls.add(mayReplace ? "create, replacing" : "create");
      return new FSDataOutputStream(new Upload(), null);
    }

    @Override
    public FSDataOutputStreamBuilder<?, ?> createFile(Path path) {
      return new Conditional(this, path);
    }
  }

  private static class Conditional
      extends FSDataOutputStreamBuilder<FSDataOutputStream, Conditional> {
    Conditional(Store store, Path path) {
      super(store, path);
    }

    @Override
    public FSDataOutputStream build() throws IOException {
      assertTrue(getMandatoryKeys().contains("fs.option.create.conditional.overwrite"));
      Store.calls.add("create only if new");
      return new FSDataOutputStream(new Upload(), null);
    }

    @Override
    public Conditional getThisBuilder() {
      return this;
    }
  }

  private static class Upload extends OutputStream implements Abortable {
    @Override
    public void write(int octet) {}

    @Override
    public void close() throws IOException {
      Store.calls.add("close");
      if (Store.isTaken) {
        throw new RemoteFileChangedException(ENTRY.toString(), "PUT", "412");
      }
    }

    @Override
    public AbortableResult abort() {
      Store.calls.add("abort");
      return null;
    }
  }
}
