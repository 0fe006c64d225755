import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Tables with versions, for tests. Version v of a table has 100 (v % 1000) rows: a = i % 7, b = (i % 3 = 0).
 *
 * A file of properties, the catalog's option "state", says what a table is now, so that a test changes it while it is read:
 * current (its version), oldest (the first that still exists), provider, wide (the first version that has the column Provider; the
 * table itself has it where "altered" is set), says (a table says its version itself, and so much more).
 */
public class VersionedCatalog implements TableCatalog {
  private String name;
  private Path state;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.state = Path.of(options.get("state"));
  }

  @Override
  public String name() {
    return name;
  }

  private Properties now() {
    Properties found = new Properties();
    try (var reader = Files.newBufferedReader(state)) {
      found.load(reader);
    } catch (IOException error) {
      throw new RuntimeException(error);
    }
    return found;
  }

  private static int number(Properties now, String key) {
    return Integer.parseInt(now.getProperty(key, "1000000"));
  }

  @Override
  public Table loadTable(Identifier ident) throws NoSuchTableException {
    Properties now = now();
    if (ident.name().equals("refs") && ident.namespace().length == 2 && now.getProperty("provider").equals("iceberg")) {
      return new Refs(number(now, "current"));
    }
    if (ident.namespace().length != 1 || !ident.name().equals("people")) throw new NoSuchTableException(ident);
    int version = number(now, "current");
    return new Rows(now, version, version >= number(now, "wide") || now.containsKey("altered"));
  }

  @Override
  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    Properties now = now();
    int asked = Integer.parseInt(version);
    if (asked < number(now, "oldest") || asked > number(now, "current")) {
      throw new IllegalArgumentException("Cannot find snapshot with ID " + version);
    }
    return new Rows(now, asked, asked >= number(now, "wide"));
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) {
    throw new UnsupportedOperationException();
  }

  @Override
  public boolean dropTable(Identifier ident) {
    return false;
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException();
  }

  /** One partition of rows that a function of their number makes. */
  private abstract static class Made implements Table, SupportsRead, ScanBuilder, Scan, Batch {
    abstract int rows();

    /** The snapshot of the branch, where the rows are branches; else -1. */
    int main() {
      return -1;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return this;
    }

    @Override
    public Scan build() {
      return this;
    }

    @Override
    public StructType readSchema() {
      StructType found = new StructType();
      for (Column column : columns()) found = found.add(column.name(), column.dataType(), column.nullable());
      return found;
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return new InputPartition[] {new Part(rows(), columns().length, main())};
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Factory();
    }
  }

  private static class Rows extends Made {
    private final Properties now;
    private final int version;
    private final boolean wide;

    Rows(Properties now, int version, boolean wide) {
      this.now = now;
      this.version = version;
      this.wide = wide;
    }

    @Override
    public String name() {
      return "people";
    }

    @Override
    int rows() {
      return 100 * (version % 1000);
    }

    @Override
    public Column[] columns() {
      Column a = Column.create("a", DataTypes.IntegerType), b = Column.create("b", DataTypes.BooleanType, false);
      return wide ? new Column[] {a, b, Column.create("Provider", DataTypes.IntegerType)} : new Column[] {a, b};
    }

    @Override
    public Map<String, String> properties() {
      return new HashMap<>(Map.of("provider", now.getProperty("provider")));
    }

    /** Of Spark 4.1 and later. */
    public String version() {
      return now.containsKey("says") ? String.valueOf(version + number(now, "says")) : null;
    }
  }

  private static class Refs extends Made {
    private final int version;

    Refs(int version) {
      this.version = version;
    }

    @Override
    public String name() {
      return "refs";
    }

    @Override
    int rows() {
      return 2;
    }

    @Override
    int main() {
      return version;
    }

    @Override
    public Column[] columns() {
      return new Column[] {Column.create("name", DataTypes.StringType), Column.create("snapshot_id", DataTypes.LongType)};
    }
  }

  private record Part(int rows, int columns, int main) implements InputPartition {}

  private static class Factory implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      Part part = (Part) partition;
      return new PartitionReader<>() {
        private int next = -1;

        @Override
        public boolean next() {
          return ++next < part.rows();
        }

        @Override
        public InternalRow get() {
          Object[] values = new Object[part.columns()];
          if (part.main() < 0) {
            values[0] = next % 7;
            values[1] = next % 3 == 0;
            if (values.length > 2) values[2] = next % 5;
          } else {
            values[0] = UTF8String.fromString(next == 0 ? "older" : "main");
            values[1] = next == 0 ? 1L : (long) part.main();
          }
          return new GenericInternalRow(values);
        }

        @Override
        public void close() {}
      };
    }
  }
}
