// Input of a MapReduce job whose mappers search for a regular expression: instead of a file's lines, those that match, which
// `dcs copy` finds in the DataNode's own block files. The job itself is unchanged:
//
//     hadoop ... grep -Dmapreduce.job.inputformat.class=NearStorageInputFormat -Ddcs.datanode=/data/dn -Ddcs.command=dcs ...
//
// | property | |
// |---|---|
// | dcs.datanode | the DataNode's folder on this machine (dfs.datanode.data.dir); the job's user may read the block files |
// | dcs.command | the dcs command; its environment says where chains run (DCS_BACKEND) |
// | mapreduce.mapper.regex | the expression, set by the job; both Java's and dcs' syntax, no carriage return in a match |
//
// A block's data are compared with the checksums that the DataNode stores beside them, as an HDFS client does. A line that
// crosses blocks, and blocks that are not on this machine, are read through HDFS. The counters of the job say how many bytes
// went which way. Not here: compressed files, files of several block pools' DataNodes on one machine, and lines that end in a
// carriage return alone.

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HdfsBlockLocation;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.server.datanode.DatanodeUtil;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.compress.CompressionCodecFactory;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.lib.map.RegexMapper;
import org.apache.hadoop.util.CrcComposer;
import org.apache.hadoop.util.DataChecksum;
import org.apache.hadoop.util.LineReader;

public final class NearStorageInputFormat extends FileInputFormat<NullWritable, Text> {
    @Override
    protected boolean isSplitable(JobContext context, Path file) {
        if (new CompressionCodecFactory(context.getConfiguration()).getCodec(file) != null) {
            throw new IllegalArgumentException(file + " is compressed: give this job plain text");
        }
        return true;
    }

    @Override
    public RecordReader<NullWritable, Text> createRecordReader(InputSplit split, TaskAttemptContext context) {
        return new Lines();
    }

    /** Lines of a split that match, and perhaps some that do not. */
    private static final class Lines extends RecordReader<NullWritable, Text> {
        private final Text line = new Text();
        private LineReader reader;

        @Override
        public void initialize(InputSplit split, TaskAttemptContext context) throws IOException {
            byte[] feed = {'\n'};
            List<InputStream> parts = new Parts((FileSplit) split, context).all();
            reader = new LineReader(new SequenceInputStream(Collections.enumeration(parts)), feed);
        }

        @Override
        public boolean nextKeyValue() throws IOException {
            return reader.readLine(line) > 0;
        }

        @Override
        public NullWritable getCurrentKey() {
            return NullWritable.get();
        }

        @Override
        public Text getCurrentValue() {
            return line;
        }

        @Override
        public float getProgress() {
            return 0;
        }

        @Override
        public void close() throws IOException {
            if (reader != null) {
                reader.close();
            }
        }
    }

    /** Divides a split into parts of whole lines: inside a block, and across two. */
    private static final class Parts {
        private final TaskAttemptContext context;
        private final Configuration settings;
        private final FileSystem system;
        private final FileStatus file;
        private final long first;
        private final long stop;
        private final List<InputStream> parts = new ArrayList<>();

        /** Takes the lines that Hadoop's own text input takes: those that begin behind the split's first byte, up to its end. */
        Parts(FileSplit split, TaskAttemptContext context) throws IOException {
            this.context = context;
            settings = context.getConfiguration();
            system = split.getPath().getFileSystem(settings);
            file = system.getFileStatus(split.getPath());
            long end = split.getStart() + split.getLength();
            first = split.getStart() == 0 ? 0 : afterFeed(split.getStart());
            stop = end >= file.getLen() ? file.getLen() : afterFeed(end);
        }

        List<InputStream> all() throws IOException {
            long at = first;
            for (BlockLocation block : system.getFileBlockLocations(file, first, Math.max(0, stop - first))) {
                long end = Math.min(stop, block.getOffset() + block.getLength());
                // A line that crosses the block's end is taken as a whole, after those before it.
                long lines = end == stop ? end : lastFeed(at, end);
                if (lines > at) {
                    inside(block, at, lines);
                    at = lines;
                }
                if (end > at) {
                    long next = Math.min(stop, afterFeed(end));
                    throughHdfs(at, next);
                    at = next;
                }
            }
            return parts;
        }

        private void inside(BlockLocation location, long from, long to) throws IOException {
            ExtendedBlock block = ((HdfsBlockLocation) location).getLocatedBlock().getBlock();
            File pool = new File(settings.get("dcs.datanode"), "current/" + block.getBlockPoolId());
            File folder = DatanodeUtil.idToBlockDir(new File(pool, "current/finalized"), block.getBlockId());
            File data = new File(folder, block.getBlockName());
            if (!data.isFile()) {
                throughHdfs(from, to);
                return;
            }
            File sums = new File(folder, block.getBlockName() + "_" + block.getGenerationStamp() + ".meta");
            String digest = digest(sums, block.getNumBytes());
            long skip = from - location.getOffset();
            String pattern = settings.get(RegexMapper.PATTERN).replace(",", "\\,");
            String chain = digest + "slice:" + skip + ":" + (to - from) + ",grep:" + pattern.replaceFirst("^-", "\\\\-");
            parts.add(new Dcs(settings.get("dcs.command", "dcs"), data, chain));
            context.getCounter("dcs", "bytes near storage").increment(to - from);
        }

        private void throughHdfs(long from, long to) throws IOException {
            FSDataInputStream stream = system.open(file.getPath());
            stream.seek(from);
            parts.add(new Range(stream, to - from));
            context.getCounter("dcs", "bytes through HDFS").increment(to - from);
        }

        /** Returns the place behind the first line feed at `from` or later; the file's end without one. */
        private long afterFeed(long from) throws IOException {
            try (FSDataInputStream stream = system.open(file.getPath())) {
                stream.seek(from);
                BufferedInputStream bytes = new BufferedInputStream(stream, 4096);
                for (long at = from; at < file.getLen(); at++) {
                    if (bytes.read() == '\n') {
                        return at + 1;
                    }
                }
                return file.getLen();
            }
        }

        /** Returns the place behind the last line feed between the two; `from` without one. */
        private long lastFeed(long from, long to) throws IOException {
            byte[] bytes = new byte[4096];
            try (FSDataInputStream stream = system.open(file.getPath())) {
                for (long end = to; end > from; ) {
                    int length = (int) Math.min(bytes.length, end - from);
                    stream.readFully(end - length, bytes, 0, length);
                    for (int at = length; at > 0; at--) {
                        if (bytes[at - 1] == '\n') {
                            return end - length + at;
                        }
                    }
                    end -= length;
                }
                return from;
            }
        }
    }

    /** Returns the operator that compares a block with the checksums that the DataNode has of it. */
    private static String digest(File sums, long length) throws IOException {
        try (DataInputStream in = new DataInputStream(new FileInputStream(sums))) {
            in.readShort();
            DataChecksum kind = DataChecksum.newDataChecksum(in);
            if (kind.getChecksumSize() == 0) {
                return "";
            }
            int each = kind.getBytesPerChecksum();
            CrcComposer whole = CrcComposer.newCrcComposer(kind.getChecksumType(), each);
            byte[] values = new byte[(int) (length / each) * 4];
            in.readFully(values);
            whole.update(values, 0, values.length, each);
            if (length % each != 0) {
                whole.update(in.readInt(), length % each);
            }
            StringBuilder text = new StringBuilder(kind.getChecksumType() == DataChecksum.Type.CRC32C ? "crc32c=" : "crc32=");
            for (byte value : whole.digest()) {
                text.append(String.format("%02x", value));
            }
            return text + ",";
        }
    }

    /** The output of `dcs copy`, which is started by the first read. Fails at its end if dcs does. */
    private static final class Dcs extends InputStream {
        private final ProcessBuilder command;
        private Process process;

        Dcs(String dcs, File block, String chain) {
            command = new ProcessBuilder(dcs, "copy", block.getPath(), "-", "--through", chain);
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
            if (process == null) {
                process = command.start();
                process.getOutputStream().close();
            }
            int got = process.getInputStream().read(into, offset, length);
            if (got < 0) {
                String said = new String(process.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
                try {
                    if (process.waitFor() != 0) {
                        throw new IOException(command.command() + ": " + said);
                    }
                } catch (InterruptedException error) {
                    throw new IOException(error);
                }
            }
            return got;
        }

        @Override
        public void close() {
            if (process != null) {
                process.destroy();
            }
        }
    }

    /** A range of a file of HDFS. */
    private static final class Range extends InputStream {
        private final InputStream stream;
        private long left;

        Range(InputStream stream, long length) {
            this.stream = stream;
            left = length;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
            if (left == 0) {
                return -1;
            }
            int got = stream.read(into, offset, (int) Math.min(length, left));
            if (got < 0) {
                throw new EOFException("the file became shorter");
            }
            left -= got;
            return got;
        }

        @Override
        public void close() throws IOException {
            stream.close();
        }
    }
}
