/* dcs_sendfile and dcs_recvfile keep the shape of sendfile(2). */
#include "check.h"

#include <limits.h>
#include <sys/sendfile.h>

static struct dcs_session *session;
static const struct dcs_op MD5 = {.op = DCS_OP_MD5};

/* What sendfile(2) itself does with the same arguments; it takes 2 GiB at most. */
static ssize_t reference(off_t *offset, size_t count, off_t *position) {
    int in = open_input(), out = open("/dev/null", O_WRONLY);
    CHECK(out >= 0 && lseek(in, *position, SEEK_SET) == *position);
    ssize_t moved = sendfile(out, in, offset, count > INT_MAX ? INT_MAX : count);
    CHECK(moved >= 0);
    *position = lseek(in, 0, SEEK_CUR);
    close(in);
    close(out);
    return moved;
}

/* File to socket, from an offset or from the position; beyond the end, across it, nothing, everything. */
static void counts_and_offsets(void) {
    static const struct {
        off_t from;
        size_t count;
    } cases[] = {
        {0, INPUT}, {12345, 67890}, {INPUT - 100, 1000}, {INPUT, 1}, {INPUT + 5, 1}, {7, 0}, {1, SIZE_MAX},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        for (int given = 0; given < 2; given++) {
            for (size_t operators = 0; operators < 2; operators++) {
                int ends[2], in = open_input();
                char name[64];
                snprintf(name, sizeof name, "sent-%zu-%d-%zu", at, given, operators);
                connect_tcp(ends);
                struct drain drain;
                start_drain(&drain, ends[1], name);
                off_t offset = cases[at].from, position = given ? 33 : cases[at].from;
                off_t expected_offset = offset, expected_position = position;
                CHECK(lseek(in, position, SEEK_SET) == position);
                ssize_t expected =
                    reference(given ? &expected_offset : NULL, cases[at].count, &expected_position);

                struct dcs_completion done;
                memset(&done, 0xff, sizeof done);
                ssize_t moved = dcs_sendfile(session, ends[0], in, given ? &offset : NULL, cases[at].count,
                                             &MD5, operators, &done);
                CHECK(moved == expected);
                CHECK(offset == expected_offset);
                CHECK(lseek(in, 0, SEEK_CUR) == expected_position);
                CHECK(done.result.status == DCS_STATUS_SUCCESS && done.result.stage == DCS_STAGE_NONE);
                CHECK(done.result.bytes_in == (uint64_t)moved && done.result.bytes_out == (uint64_t)moved);
                close(ends[0]);
                CHECK(end_drain(&drain) == (size_t)moved);
                say_same("input", (size_t)cases[at].from, (size_t)moved, name, 0);
                if (operators == 1) {
                    CHECK(done.chain[0] == DCS_OP_MD5 && done.chain[1] == 0);
                    CHECK(done.result.digests[0].covered == (uint64_t)moved);
                    say_digest(&done.result.digests[0], "input", (size_t)cases[at].from, (size_t)moved);
                }
                close(in);
            }
        }
    }
}

/* A destination that is a file is written at its position; done may be NULL. */
static void file_to_file(void) {
    int in = open_input(), out = create("copied");
    off_t offset = 1000;
    CHECK(lseek(out, 50, SEEK_SET) == 50);
    CHECK(dcs_sendfile(session, out, in, &offset, 200000, &MD5, 1, NULL) == 200000);
    CHECK(offset == 201000 && lseek(out, 0, SEEK_CUR) == 200050);
    CHECK(dcs_sendfile(session, out, in, &offset, 10, NULL, 0, NULL) == 10);
    CHECK(offset == 201010 && lseek(out, 0, SEEK_CUR) == 200060);
    say_same("input", 1000, 200010, "copied", 50);
    close(in);
    close(out);
}

/* A pipe has no offset, as a source and as a destination. */
static void pipes(void) {
    int first[2], second[2], in = open_input();
    CHECK(pipe(first) == 0 && pipe(second) == 0);
    off_t offset = 3;
    CHECK(dcs_sendfile(session, first[1], in, &offset, 30000, &MD5, 1, NULL) == 30000);
    CHECK(dcs_sendfile(session, second[1], first[0], NULL, 30000, &MD5, 1, NULL) == 30000);
    close(second[1]);
    struct drain drain;
    start_drain(&drain, second[0], "piped");
    CHECK(end_drain(&drain) == 30000);
    say_same("input", 3, 30000, "piped", 0);
    struct dcs_completion done;
    FAILS(dcs_sendfile(session, first[1], first[0], &offset, 1, NULL, 0, &done), ESPIPE);
    CHECK(offset == 30003);
    CHECK(done.result.status == DCS_STATUS_INVALID_FIELD && done.result.stage == DCS_STAGE_SOURCE);
    close(first[0]);
    close(first[1]);
    close(in);
}

/* The digest before the cipher covers the plain data, the one behind it the encrypted. */
static void chain(void) {
    uint8_t key[32], counter[16], parameters[DCS_AES256_CTR_PARAMETERS];
    memset(key, 0x42, sizeof key);
    memset(counter, 0xff, sizeof counter); /* the counter wraps at once */
    CHECK(dcs_parameter_aes256_ctr(parameters, key, counter) == sizeof parameters);
    const struct dcs_op through[] = {
        {.op = DCS_OP_SHA256},
        {.op = DCS_OP_AES256_CTR, .parameter = parameters, .parameter_length = sizeof parameters},
        {.op = DCS_OP_MD5},
        {.op = DCS_OP_CRC32},
    };
    struct dcs_completion done;
    int in = open_input(), out = create("encrypted");
    CHECK(dcs_sendfile(session, out, in, NULL, SIZE_MAX, through, 4, &done) == INPUT);
    CHECK(done.result.bytes_out == INPUT);
    say_digest(&done.result.digests[0], "input", 0, INPUT);
    say_digest(&done.result.digests[2], "encrypted", 0, INPUT);
    say_digest(&done.result.digests[3], "encrypted", 0, INPUT);
    CHECK(done.result.digests[1].size == 0 && done.result.digests[4].size == 0);
    printf("aes256-ctr ");
    for (int at = 0; at < 48; at++) {
        printf("%02x%s", at < 32 ? key[at] : counter[at - 32], at == 31 ? " " : "");
    }
    printf(" input encrypted\n");
    close(in);
    close(out);
}

/* Bytes in and out differ: the count and the source's offset are of what goes in, the destination's of what comes out. */
static void compression(void) {
    uint8_t level;
    CHECK(dcs_parameter_level(&level, 6) == 1);
    const struct dcs_op gzip = {.op = dcs_op_from_name("gzip"), .parameter = &level, .parameter_length = 1};
    struct dcs_completion done;
    int in = open("text", O_RDONLY), out = create("text.gz");
    off_t size = lseek(in, 0, SEEK_END), offset = 0;
    CHECK(in >= 0 && size > 100000);
    CHECK(dcs_sendfile(session, out, in, &offset, SIZE_MAX, &gzip, 1, &done) == size);
    CHECK(offset == size && done.result.bytes_in == (uint64_t)size);
    CHECK(done.result.bytes_out > 0 && done.result.bytes_out < (uint64_t)size / 2);
    CHECK(lseek(out, 0, SEEK_CUR) == (off_t)done.result.bytes_out);
    printf("gunzip text text.gz\n");
    close(in);
    close(out);
}

static void append(int fd, const char *text, char fill, size_t bytes) {
    char data[65536];
    memset(data, fill, sizeof data);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(write(fd, data, bytes) == (ssize_t)bytes && write(fd, "\r\n", 2) == 2);
}

/* The body of Amazon's example of a chunked upload (Signature Version 4), with its key, seed and signatures. */
static const uint8_t SIGNING_KEY[32] = "\xdb\xb8\x93\xac\xc0\x10\x96\x49\x18\xf1\xfd\x43\x3a\xdd\x87\xc7"
                                       "\x0e\x8b\x0d\xb6\xbe\x30\xc1\xfb\xea\xfe\xfa\x5e\xc6\xba\x83\x78";
static const uint8_t SEED[32] = "\x4f\x23\x2c\x43\x86\x84\x1e\xf7\x35\x65\x57\x05\x26\x89\x65\xc4"
                                "\x4a\x0e\x46\x90\xba\xa4\xad\xea\x15\x3f\x7d\xb9\xfa\x80\xa0\xa9";
static const struct dcs_aws_chunked EXAMPLE = {
    .decoded_length = 66560,
    .key = SIGNING_KEY,
    .seed = SEED,
    .timestamp = "20130524T000000Z",
    .scope = "20130524/us-east-1/s3/aws4_request",
};

static int open_framed(void) {
    int fd = create("framed");
    append(fd, "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n", 'a', 65536);
    append(fd, "400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n", 'a', 1024);
    append(fd, "0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n", 'a', 0);
    return fd;
}

/* Framing comes off where its signatures are right; a range of the data passes; a digest is the expected one or fails. */
static void upload(void) {
    uint8_t framing[DCS_AWS_CHUNKED_PARAMETERS], range[DCS_SLICE_PARAMETERS], expected[16];
    size_t framing_length = dcs_parameter_aws_chunked(framing, &EXAMPLE);
    CHECK(framing_length == 16 + 32 + 32 + 16 + strlen(EXAMPLE.scope));
    CHECK(dcs_parameter_slice(range, 65530, 1000) == sizeof range);
    struct dcs_op through[] = {
        {.op = DCS_OP_AWS_CHUNKED, .parameter = framing, .parameter_length = framing_length},
        {.op = DCS_OP_SHA256},
        {.op = DCS_OP_SLICE, .parameter = range, .parameter_length = sizeof range},
        {.op = DCS_OP_MD5},
    };
    struct dcs_completion done;
    int in = open_framed(), whole = create("unframed"), out = create("range");
    off_t offset = 0;
    CHECK(dcs_sendfile(session, whole, in, &offset, SIZE_MAX, through, 1, &done) > 66560);
    offset = 0;
    CHECK(dcs_sendfile(session, out, in, &offset, SIZE_MAX, through, 4, &done) > 66560);
    CHECK(done.result.bytes_out == 1000);
    say_digest(&done.result.digests[1], "unframed", 0, 66560);
    say_same("unframed", 65530, 1000, "range", 0);
    say_digest(&done.result.digests[3], "range", 0, 1000);

    memcpy(expected, done.result.digests[3].value, sizeof expected);
    through[3] = (struct dcs_op){.op = DCS_OP_MD5, .parameter = expected, .parameter_length = sizeof expected};
    offset = 0;
    CHECK(dcs_sendfile(session, out, in, &offset, SIZE_MAX, through, 4, &done) > 66560);
    expected[15] ^= 1;
    offset = 0;
    CHECK(dcs_sendfile(session, out, in, &offset, SIZE_MAX, through, 4, &done) == -1);
    CHECK(done.result.status == DCS_STATUS_DIGEST_MISMATCH && done.result.stage == DCS_STAGE_OPERATOR);

    struct dcs_aws_chunked other = EXAMPLE;
    uint8_t seed[32];
    memcpy(seed, SEED, sizeof seed);
    seed[0] ^= 1;
    other.seed = seed;
    CHECK(dcs_parameter_aws_chunked(framing, &other) == framing_length);
    offset = 0;
    CHECK(dcs_sendfile(session, out, in, &offset, SIZE_MAX, through, 1, &done) == -1);
    CHECK(done.result.status == DCS_STATUS_SIGNATURE_MISMATCH && done.result.stage == DCS_STAGE_OPERATOR);
    close(in);
    close(whole);
    close(out);
}

/* Sends a part of the input into a socket, a piece at a time, and shuts it down. */
struct feed {
    pthread_t thread;
    int into;
    size_t from, bytes;
};

static void *feed_all(void *argument) {
    struct feed *feed = argument;
    int in = open_input();
    char bytes[9973];
    while (feed->bytes > 0) {
        ssize_t got = pread(in, bytes, feed->bytes < sizeof bytes ? feed->bytes : sizeof bytes, (off_t)feed->from);
        CHECK(got > 0 && send(feed->into, bytes, (size_t)got, 0) == got);
        feed->from += (size_t)got;
        feed->bytes -= (size_t)got;
    }
    CHECK(shutdown(feed->into, SHUT_WR) == 0);
    close(in);
    return NULL;
}

/* What was read off the socket before comes first; short and long prefixes (copied and not); offset and position; a
 * socket that does not block; a peer that stops before the count. */
static void receive(void) {
    static const struct {
        size_t prefix, sent, count;
        bool offset, nonblocking;
    } cases[] = {
        {0, 300000, 300000, true, false},      {1000, 300000, 301000, true, true},
        {200000, 300000, 500000, false, true}, {1000, 5000, 300000, true, false},
        {70000, 0, 70000, false, false},       {10, 400000, SIZE_MAX, true, true},
        {500, 0, 500, true, false},
    };
    int in = open_input();
    static char head[200000];
    CHECK(pread(in, head, sizeof head, 0) == (ssize_t)sizeof head);
    close(in);
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        int ends[2];
        char name[64];
        snprintf(name, sizeof name, "received-%zu", at);
        connect_tcp(ends);
        if (cases[at].nonblocking) {
            CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
        }
        struct feed feed = {.into = ends[0], .from = cases[at].prefix, .bytes = cases[at].sent};
        CHECK(pthread_create(&feed.thread, NULL, feed_all, &feed) == 0);
        size_t expected = cases[at].prefix + cases[at].sent;
        struct dcs_completion done;
        off_t offset = 4097;
        int out = create(name);
        CHECK(lseek(out, 11, SEEK_SET) == 11);
        ssize_t moved = dcs_recvfile(session, ends[1], out, cases[at].offset ? &offset : NULL, cases[at].count,
                                     cases[at].prefix > 0 ? head : NULL, cases[at].prefix, &MD5, 1, &done);
        CHECK(moved == (ssize_t)expected && done.result.status == DCS_STATUS_SUCCESS);
        CHECK(done.result.bytes_out == expected && done.result.digests[0].covered == expected);
        off_t start = cases[at].offset ? 4097 : 11;
        CHECK(lseek(out, 0, SEEK_CUR) == (cases[at].offset ? 11 : start + moved));
        CHECK(lseek(out, 0, SEEK_END) == start + moved);
        CHECK(offset == (cases[at].offset ? start + moved : 4097));
        say_same("input", 0, expected, name, (size_t)start);
        say_digest(&done.result.digests[0], "input", 0, expected);
        CHECK(pthread_join(feed.thread, NULL) == 0);
        close(ends[0]);
        close(ends[1]);
        close(out);
    }
}

/* A sending socket that does not block, and a reader that is slow: all of it arrives. */
static void nonblocking_sender(void) {
    for (size_t operators = 0; operators < 2; operators++) {
        int ends[2], in = open_input();
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
        CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
        struct drain drain;
        start_drain(&drain, ends[1], "slow");
        CHECK(dcs_sendfile(session, ends[0], in, NULL, INPUT, &MD5, operators, NULL) == INPUT);
        close(ends[0]);
        CHECK(end_drain(&drain) == INPUT);
        say_same("input", 0, INPUT, "slow", 0);
        close(in);
    }
}

/* A file that says that it is empty, and is not. */
static void proc_file(void) {
    char expected[4096], got[4096];
    int in = open("/proc/version", O_RDONLY), out = create("version");
    CHECK(in >= 0);
    ssize_t length = pread(in, expected, sizeof expected, 0);
    CHECK(length > 20);
    CHECK(dcs_sendfile(session, out, in, NULL, SIZE_MAX, NULL, 0, NULL) == length);
    CHECK(lseek(in, 0, SEEK_CUR) == length && lseek(out, 0, SEEK_CUR) == length);
    CHECK(pread(out, got, sizeof got, 0) == length && memcmp(expected, got, (size_t)length) == 0);
    off_t offset = 5;
    CHECK(dcs_sendfile(session, out, in, &offset, 10, &MD5, 1, NULL) == 10);
    CHECK(offset == 15 && pread(out, got, 10, length) == 10 && memcmp(expected + 5, got, 10) == 0);
    CHECK(dcs_sendfile(session, out, in, &offset, 1 << 20, &MD5, 1, NULL) == length - 15);
    CHECK(offset == length && dcs_sendfile(session, out, in, &offset, 7, NULL, 0, NULL) == 0);
    close(in);
    close(out);
}

struct receiver {
    int from, into;
    ssize_t moved;
};

static void *receive_all(void *argument) {
    struct receiver *receiver = argument;
    receiver->moved = dcs_recvfile(session, receiver->from, receiver->into, NULL, SIZE_MAX, NULL, 0, &MD5, 1, NULL);
    return NULL;
}

/* The number of the destination is given to another file before the call has ended: that one is left alone. */
static void a_number_that_is_reused(void) {
    int ends[2], into = create("reused"), same = dup(into), other = create("other");
    CHECK(lseek(other, 7, SEEK_SET) == 7);
    connect_tcp(ends);
    struct receiver receiver = {ends[0], into, -1};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, receive_all, &receiver) == 0);
    static char bytes[1 << 20];
    for (size_t sent = 0; sent < sizeof bytes;) {
        ssize_t now = send(ends[1], bytes + sent, sizeof bytes - sent, 0);
        CHECK(now > 0);
        sent += (size_t)now;
    }
    struct stat about;
    do {
        CHECK(fstat(same, &about) == 0);
    } while (about.st_size == 0 && poll(NULL, 0, 1) == 0);
    CHECK(dup2(other, into) == into);
    close(ends[1]);
    CHECK(pthread_join(thread, NULL) == 0 && receiver.moved == (ssize_t)sizeof bytes);
    CHECK(lseek(into, 0, SEEK_CUR) == 7 && lseek(other, 0, SEEK_CUR) == 7);
    CHECK(lseek(same, 0, SEEK_CUR) == (off_t)sizeof bytes);
    close(ends[0]);
    close(into);
    close(same);
    close(other);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    struct dcs_engine *engine = start_engine();
    session = open_session(engine, 2);
    counts_and_offsets();
    file_to_file();
    pipes();
    chain();
    compression();
    upload();
    receive();
    nonblocking_sender();
    proc_file();
    a_number_that_is_reused();
    dcs_session_close(session);
    dcs_engine_stop(engine);
    printf("end\n");
    return 0;
}
