package onceflow;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;
import org.apache.spark.unsafe.Platform;

/**
 * Files of a checkpoint on S3: each is one request, which the store refuses if the file must be new
 * and is there. Spark's own managers look first and write then, so that of two drivers both may
 * write one entry of a log, and the second replaces what the first has read.
 */
public class ConditionalFiles extends FileSystemBasedCheckpointFileManager {
  private static final String ONLY_IF_NEW = "fs.option.create.conditional.overwrite";

  public ConditionalFiles(Path path, Configuration settings) {
    super(path, settings);
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean mayReplace) {
    try {
      // A store that knows no conditions is named in the settings of S3A.
      boolean isConditional = !mayReplace && fs().hasPathCapability(path, ONLY_IF_NEW);
      FSDataOutputStream stream =
          isConditional
              ? (FSDataOutputStream) fs().createFile(path).must(ONLY_IF_NEW, true).build()
              : fs().create(path, mayReplace);
      return new WholeFile(path, stream);
    } catch (IOException error) {
      // As it is, although Scala, which knows no checked exceptions, has declared none.
      Platform.throwException(error);
      throw new IllegalStateException(error);
    }
  }

  /** A file that is there as a whole when it is closed, or not at all. */
  private static class WholeFile extends CancellableFSDataOutputStream {
    private final Path path;
    private final FSDataOutputStream stream;
    private boolean isOver = false;

    WholeFile(Path path, FSDataOutputStream stream) {
      super(stream);
      this.path = path;
      this.stream = stream;
    }

    @Override
    public void close() throws IOException {
      if (isOver) {
        return;
      }
      isOver = true;
      try {
        stream.close();
      } catch (RemoteFileChangedException error) {
        // As Spark expects it of a log that another driver writes, too.
        IOException told = new FileAlreadyExistsException(path.toString());
        told.initCause(error);
        throw told;
      }
    }

    @Override
    public void cancel() {
      if (!isOver) {
        isOver = true;
        stream.abort();
      }
    }
  }
}
