/* Bad input and bad luck: each has its errno, its status and its stage, and harms nothing else. */
#include "check.h"

static struct dcs_engine *engine;
static struct dcs_session *session;
static const struct dcs_op MD5 = {.op = DCS_OP_MD5};

static void told(const struct dcs_completion *done, unsigned status, unsigned stage, unsigned at) {
    if (done->result.status != status || done->result.stage != stage || done->result.stage_index != at) {
        char line[200];
        dcs_completion_sentence(done, line, sizeof line);
        fprintf(stderr, "expected %s at stage %u (%u): %s\n", dcs_status_name((uint16_t)status), stage, at, line);
        abort();
    }
}

/* A call that fails: errno, status, stage, which operator; and the session works afterwards. */
static void refuse(int out, int in, const struct dcs_op *chain, size_t operators, int error, unsigned status,
                   unsigned stage, unsigned at) {
    struct dcs_completion done;
    memset(&done, 0xff, sizeof done);
    off_t offset = 17;
    FAILS(dcs_sendfile(session, out, in, &offset, 1000, chain, operators, &done), error);
    CHECK(offset == 17 && done.result.bytes_out == 0);
    told(&done, status, stage, at);
    char line[200];
    size_t length = dcs_completion_sentence(&done, line, sizeof line);
    CHECK(length > 20 && length == strlen(line) && strstr(line, "0 bytes had been delivered") != NULL);

    /* The same, submitted: told by the completion. */
    struct dcs_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.source.fd = in;
    request.source.offset = 17;
    request.destination.fd = out;
    request.length = 1000;
    request.chain = chain;
    request.operators = operators;
    struct dcs_transfer *transfer = NULL;
    CHECK(dcs_transfer_submit(session, &request, &transfer) == 0);
    struct dcs_completion again;
    FAILS(dcs_transfer_wait(transfer, &again), error);
    told(&again, status, stage, at);
    dcs_transfer_free(transfer);
}

static void descriptors(void) {
    int in = open_input(), out = create("out"), closed = dup(in), writes = open("out", O_WRONLY);
    int folder = open(".", O_RDONLY), appends = open("out", O_WRONLY | O_APPEND), path = open("out", O_PATH);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0), listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(folder >= 0 && appends >= 0 && path >= 0 && datagrams >= 0 && listen(listener, 1) == 0);
    close(closed);
    refuse(out, closed, NULL, 0, EBADF, DCS_STATUS_BAD_HANDLE, DCS_STAGE_SOURCE, 0);
    refuse(closed, in, NULL, 0, EBADF, DCS_STATUS_BAD_HANDLE, DCS_STAGE_DESTINATION, 0);
    refuse(out, -1, NULL, 0, EBADF, DCS_STATUS_BAD_HANDLE, DCS_STAGE_SOURCE, 0);
    refuse(-1, in, &MD5, 1, EBADF, DCS_STATUS_BAD_HANDLE, DCS_STAGE_DESTINATION, 0);
    refuse(-7, in, &MD5, 1, EBADF, DCS_STATUS_BAD_HANDLE, DCS_STAGE_DESTINATION, 0);
    refuse(in, in, NULL, 0, EBADF, DCS_STATUS_ACCESS_DENIED, DCS_STAGE_DESTINATION, 0);
    refuse(in, in, &MD5, 1, EBADF, DCS_STATUS_ACCESS_DENIED, DCS_STAGE_DESTINATION, 0);
    CHECK(ftruncate(out, 5000) == 0);
    refuse(out, writes, NULL, 0, EBADF, DCS_STATUS_ACCESS_DENIED, DCS_STAGE_SOURCE, 0);
    refuse(appends, in, &MD5, 1, EINVAL, DCS_STATUS_UNSUPPORTED_ENDPOINT, DCS_STAGE_DESTINATION, 0);
    refuse(out, folder, NULL, 0, EINVAL, DCS_STATUS_UNSUPPORTED_ENDPOINT, DCS_STAGE_SOURCE, 0);
    refuse(datagrams, in, NULL, 0, EINVAL, DCS_STATUS_UNSUPPORTED_ENDPOINT, DCS_STAGE_DESTINATION, 0);
    refuse(listener, in, NULL, 0, EINVAL, DCS_STATUS_UNSUPPORTED_ENDPOINT, DCS_STAGE_DESTINATION, 0);
    refuse(path, in, NULL, 0, EINVAL, DCS_STATUS_UNSUPPORTED_ENDPOINT, DCS_STAGE_DESTINATION, 0);
    /* From 17 on to the beginning of the same file. */
    int both = open("out", O_RDWR);
    CHECK(both >= 0);
    refuse(both, both, &MD5, 1, EINVAL, DCS_STATUS_OVERLAP, DCS_STAGE_DESTINATION, 0);
    CHECK(strstr(dcs_status_meaning(DCS_STATUS_OVERLAP), "overlaps the source") != NULL);
    CHECK(strstr(dcs_status_advice(DCS_STATUS_OVERLAP), "ranges that do not overlap") != NULL);
    int all[] = {in, out, writes, folder, appends, path, datagrams, listener, both};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        close(all[at]);
    }
}

/* No GPU is there for sure, and nobody else does what it is to do. */
static void gpus(void) {
    int in = open_input(), out = create("out");
    const struct dcs_op second[] = {MD5, {.op = DCS_OP_MD5 | DCS_OP_ON_GPU}};
    CHECK(dcs_op_from_name("gpu:md5") == second[1].op && dcs_op_from_name("gpu:gzip") == 0);
    refuse(out, in, second, 2, ENODEV, DCS_STATUS_UNKNOWN_OPERATOR, DCS_STAGE_OPERATOR, 1);
    CHECK(setenv("DCS_CUDA_LIBRARY", "/no/such/libcuda.so.1", 1) == 0);
    struct dcs_engine_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.gpu = 1;
    struct dcs_engine *none = NULL;
    FAILS(dcs_engine_start(&options, &none), ENODEV);
    options.gpu_storage = DCS_MODE_OFF + 1;
    FAILS(dcs_engine_start(&options, &none), EINVAL);
    CHECK(none == NULL);
    char line[200];
    size_t length = dcs_gpu_sentence(1, line, sizeof line);
    CHECK(length > 20 && strstr(line, "no GPU: /no/such/libcuda.so.1") == line);
    CHECK(dcs_gpu_sentence(1, NULL, 0) == length);
    close(in);
    close(out);
}

static void chains(void) {
    int in = open_input(), out = create("out");
    uint8_t parameters[DCS_AES256_XTS_PARAMETERS] = {0};
    struct dcs_op nine[9];
    for (int at = 0; at < 9; at++) {
        nine[at] = MD5;
    }
    refuse(out, in, nine, 9, EINVAL, DCS_STATUS_INVALID_FIELD, DCS_STAGE_FRONTEND, 0);
    refuse(out, in, nine, SIZE_MAX, EINVAL, DCS_STATUS_INVALID_FIELD, DCS_STAGE_FRONTEND, 0);
    CHECK(dcs_sendfile(session, out, in, NULL, 10, nine, 8, NULL) == 10);
    const struct dcs_op unknown[] = {MD5, {.op = 0x7f}};
    refuse(out, in, unknown, 2, EOPNOTSUPP, DCS_STATUS_UNKNOWN_OPERATOR, DCS_STAGE_OPERATOR, 1);
    const struct dcs_op misspelt[] = {MD5, {.op = dcs_op_from_name("md6")}};
    refuse(out, in, misspelt, 2, EOPNOTSUPP, DCS_STATUS_UNKNOWN_OPERATOR, DCS_STAGE_OPERATOR, 1);
    const struct dcs_op cut = {.op = DCS_OP_AES256_CTR, .parameter = parameters, .parameter_length = 47};
    refuse(out, in, &cut, 1, EINVAL, DCS_STATUS_BAD_PARAMETER, DCS_STAGE_OPERATOR, 0);
    const struct dcs_op keyless[] = {MD5, MD5, {.op = DCS_OP_AES256_CTR}};
    refuse(out, in, keyless, 3, EINVAL, DCS_STATUS_BAD_PARAMETER, DCS_STAGE_OPERATOR, 2);
    const struct dcs_op nowhere = {.op = DCS_OP_AES256_CTR, .parameter_length = 48};
    refuse(out, in, &nowhere, 1, EFAULT, DCS_STATUS_BAD_PARAMETER, DCS_STAGE_OPERATOR, 0);
    const struct dcs_op endless = {.op = DCS_OP_GZIP, .parameter = parameters, .parameter_length = SIZE_MAX};
    refuse(out, in, &endless, 1, EINVAL, DCS_STATUS_BAD_PARAMETER, DCS_STAGE_OPERATOR, 0);
    const uint8_t level = 200;
    const struct dcs_op high = {.op = DCS_OP_GZIP, .parameter = &level, .parameter_length = 1};
    refuse(out, in, &high, 1, EINVAL, DCS_STATUS_BAD_PARAMETER, DCS_STAGE_OPERATOR, 0);
    refuse(out, in, NULL, 1, EFAULT, DCS_STATUS_INVALID_FIELD, DCS_STAGE_FRONTEND, 0);
    close(in);
    close(out);
}

static void nulls_and_sizes(void) {
    struct dcs_completion done;
    int in = open_input(), out = create("out");
    FAILS(dcs_sendfile(NULL, out, in, NULL, 1, NULL, 0, &done), EFAULT);
    CHECK(done.result.status == DCS_STATUS_INVALID_FIELD);
    FAILS(dcs_sendfile(NULL, out, in, NULL, 1, NULL, 0, NULL), EFAULT);
    FAILS(dcs_recvfile(session, in, out, NULL, 10, NULL, 1, NULL, 0, &done), EFAULT);
    FAILS(dcs_recvfile(session, in, out, NULL, 1, "ab", 2, NULL, 0, &done), EINVAL);
    off_t negative = -1;
    FAILS(dcs_sendfile(session, out, in, &negative, 1, NULL, 0, &done), EINVAL);
    CHECK(done.result.stage == DCS_STAGE_SOURCE && negative == -1);
    FAILS(dcs_recvfile(session, in, out, &negative, 1, NULL, 0, NULL, 0, &done), EINVAL);
    CHECK(done.result.stage == DCS_STAGE_DESTINATION);

    struct dcs_session *other;
    struct dcs_engine *fresh;
    FAILS(dcs_session_open(NULL, 1, &other), EFAULT);
    FAILS(dcs_session_open(engine, 1, NULL), EFAULT);
    FAILS(dcs_session_open(engine, 4097, &other), EINVAL);
    FAILS(dcs_session_eventfd(NULL), EFAULT);
    FAILS(dcs_engine_uses_io_uring(NULL), EFAULT);
    CHECK(dcs_engine_uses_io_uring(engine) == (io == DCS_IO_PLAIN ? 0 : dcs_engine_uses_io_uring(engine)));
    FAILS(dcs_engine_start(NULL, NULL), EFAULT);
    dcs_engine_stop(NULL);
    dcs_session_close(NULL);
    dcs_transfer_free(NULL);
    FAILS(dcs_transfer_wait(NULL, &done), EFAULT);
    FAILS(dcs_transfer_poll(NULL, &done), EFAULT);
    FAILS(dcs_transfer_cancel(NULL), EFAULT);

    struct dcs_engine_options options = {.size = sizeof options, .sessions = 2};
    options.size = sizeof options - 1;
    FAILS(dcs_engine_start(&options, &fresh), EINVAL);
    options.size = SIZE_MAX;
    FAILS(dcs_engine_start(&options, &fresh), E2BIG);
    options.size = sizeof options;
    options.driver = 2;
    FAILS(dcs_engine_start(&options, &fresh), EINVAL);
    options.driver = DCS_DRIVER_CALLER;
    options.io = 3;
    FAILS(dcs_engine_start(&options, &fresh), EINVAL);
    options.io = DCS_IO_PLAIN;
    options.flags = 2;
    FAILS(dcs_engine_start(&options, &fresh), EINVAL);
    options.flags = 0;
    options.block_size = 4095;
    FAILS(dcs_engine_start(&options, &fresh), EINVAL);
    options.block_size = 0;
    options.blocks = 1;
    FAILS(dcs_engine_start(&options, &fresh), EINVAL);
    options.blocks = 0;
    CHECK(dcs_engine_start(&options, &fresh) == 0);
    struct dcs_session *sessions[2] = {open_session(fresh, 0), open_session(fresh, 4096)};
    FAILS(dcs_session_open(fresh, 1, &other), EMFILE);
    dcs_session_close(sessions[0]);
    other = open_session(fresh, 1);
    dcs_session_close(other);
    dcs_session_close(sessions[1]);
    dcs_engine_stop(fresh);

    /* A structure of a newer header: members that this library does not know must be zero. */
    struct {
        struct dcs_request request;
        uint64_t newer;
    } longer;
    memset(&longer, 0, sizeof longer);
    longer.request.size = sizeof longer;
    longer.request.source.fd = in;
    longer.request.destination.fd = out;
    struct dcs_transfer *transfer;
    CHECK(dcs_transfer_submit(session, &longer.request, &transfer) == 0);
    CHECK(dcs_transfer_wait(transfer, NULL) == 0);
    dcs_transfer_free(transfer);
    longer.newer = 1;
    FAILS(dcs_transfer_submit(session, &longer.request, &transfer), E2BIG);
    longer.request.size = sizeof(size_t);
    FAILS(dcs_transfer_submit(session, &longer.request, &transfer), EINVAL);
    FAILS(dcs_transfer_submit(session, NULL, &transfer), EFAULT);
    FAILS(dcs_transfer_submit(NULL, &longer.request, &transfer), EFAULT);
    FAILS(dcs_transfer_submit(session, &longer.request, NULL), EFAULT);
    close(in);
    close(out);
}

/* What a request can have wrong beside its descriptors and its chain. */
static void requests(void) {
    int in = open_input(), out = create("out"), pipes[2];
    CHECK(pipe(pipes) == 0);
    struct dcs_request good;
    memset(&good, 0, sizeof good);
    good.size = sizeof good;
    good.source.fd = in;
    good.destination.fd = out;
    good.length = 100;
    char memory[10];
    for (int what = 0; what < 14; what++) {
        struct dcs_request bad = good;
        int error = EINVAL;
        unsigned status = DCS_STATUS_INVALID_FIELD, stage = DCS_STAGE_FRONTEND;
        switch (what) {
        case 0: bad.flags = 0x8000; break;
        case 1: bad.reserved = 1; break;
        case 2: bad.prefix = memory, bad.prefix_length = sizeof memory, bad.length = 5; break;
        case 3: bad.prefix_length = 1, error = EFAULT; break;
        case 4: bad.source.cache = 3, stage = DCS_STAGE_SOURCE; break;
        case 5: bad.destination.zero_copy = 3, stage = DCS_STAGE_DESTINATION; break;
        case 6: bad.source.near_storage = 1, stage = DCS_STAGE_SOURCE; break;
        case 7: bad.source.memory = memory, bad.source.memory_length = SIZE_MAX, stage = DCS_STAGE_SOURCE; break;
        case 8: bad.destination.fd = pipes[1], bad.destination.offset = 4, error = ESPIPE;
                stage = DCS_STAGE_DESTINATION; break;
        case 9: bad.source.offset = INPUT - 99, error = ERANGE, status = DCS_STATUS_OUT_OF_RANGE;
                stage = DCS_STAGE_SOURCE; break;
        case 10: bad.source.offset = UINT64_MAX, error = ERANGE, status = DCS_STATUS_OUT_OF_RANGE;
                stage = DCS_STAGE_SOURCE; break;
        case 11: bad.destination.offset = UINT64_MAX, error = ERANGE, status = DCS_STATUS_OUT_OF_RANGE;
                stage = DCS_STAGE_DESTINATION; break;
        case 12: bad.destination.near_storage = 2, stage = DCS_STAGE_DESTINATION; break;
        case 13: bad.destination.near_storage = 1, error = EOPNOTSUPP, status = DCS_STATUS_PATH_UNAVAILABLE;
                stage = DCS_STAGE_DESTINATION; break;
        }
        struct dcs_transfer *transfer = NULL;
        struct dcs_completion done;
        CHECK(dcs_transfer_submit(session, &bad, &transfer) == 0);
        FAILS(dcs_transfer_wait(transfer, &done), error);
        told(&done, status, stage, 0);
        dcs_transfer_free(transfer);
    }
    struct stat stat;
    CHECK(fstat(out, &stat) == 0 && stat.st_size == 0); /* nothing was written */
    close(in);
    close(out);
    close(pipes[0]);
    close(pipes[1]);
}

static void *reset_later(void *argument) {
    int peer = *(int *)argument;
    char bytes[4096];
    for (int left = 25; left > 0; left--) {
        CHECK(read(peer, bytes, sizeof bytes) > 0);
    }
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    CHECK(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(peer);
    return NULL;
}

/* The peer reads a little and resets: bytes and digest are told all the same, and the offset is behind what arrived. */
static void peer_resets(void) {
    for (size_t operators = 0; operators < 2; operators++) {
        int ends[2], in = open_input();
        connect_tcp(ends);
        int small = 65536;
        CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, reset_later, &ends[1]) == 0);
        struct dcs_completion done;
        off_t offset = 0;
        CHECK(dcs_sendfile(session, ends[0], in, &offset, INPUT, &MD5, operators, &done) == -1);
        CHECK(errno == ECONNRESET || errno == EPIPE);
        CHECK(done.result.status == DCS_STATUS_PEER_RESET && done.result.stage == DCS_STAGE_DESTINATION);
        CHECK(done.result.errno_ == (uint32_t)errno);
        CHECK(done.result.bytes_out >= 25 * 4096 && done.result.bytes_out < INPUT);
        CHECK(offset == (off_t)done.result.bytes_out);
        if (operators == 1) {
            CHECK(done.result.digests[0].covered >= done.result.bytes_out);
            say_digest(&done.result.digests[0], "input", 0, done.result.digests[0].covered);
        }
        char line[200];
        CHECK(dcs_completion_sentence(&done, line, sizeof line) > 0 && strstr(line, "destination: ") == line);
        CHECK(pthread_join(thread, NULL) == 0);
        close(ends[0]);
        close(in);
    }
}

/* SIGPIPE has its default action here: it must not reach this process, whoever drives the engine. */
static void broken_pipes(void) {
    for (int kind = 0; kind < 3; kind++) {
        for (size_t operators = 0; operators < 2; operators++) {
            int ends[2], in = open_input();
            if (kind == 0) {
                CHECK(pipe(ends) == 0);
                int reader = ends[0];
                ends[0] = ends[1];
                ends[1] = reader;
            } else {
                CHECK(socketpair(AF_UNIX, SOCK_STREAM | (kind == 1 ? SOCK_NONBLOCK : 0), 0, ends) == 0);
            }
            close(ends[1]);
            struct dcs_completion done;
            FAILS(dcs_sendfile(session, ends[0], in, NULL, 1000, &MD5, operators, &done), EPIPE);
            CHECK(done.result.status == DCS_STATUS_PEER_RESET && done.result.stage == DCS_STAGE_DESTINATION);
            close(ends[0]);
            close(in);
        }
    }
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
    /* And one that was sent on purpose still arrives: the mask is as it was. */
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGPIPE));
}

/* /dev/full: the destination is full. */
static void full(void) {
    int in = open_input(), out = open("/dev/full", O_WRONLY);
    struct dcs_completion done;
    CHECK(out >= 0);
    FAILS(dcs_sendfile(session, out, in, NULL, 1000, &MD5, 1, &done), ENOSPC);
    CHECK(done.result.status == DCS_STATUS_CAPACITY_EXCEEDED && done.result.stage == DCS_STAGE_DESTINATION);
    close(in);
    close(out);
}

static void texts(void) {
    CHECK(strcmp(dcs_version(), "0.1.0") == 0);
    CHECK(strcmp(dcs_status_name(DCS_STATUS_PEER_RESET), "PEER_RESET") == 0);
    CHECK(strcmp(dcs_status_name(0x3ff), "UNKNOWN") == 0);
    CHECK(strcmp(dcs_status_meaning(DCS_STATUS_PEER_RESET), "the peer reset or closed the connection") == 0);
    CHECK(dcs_status_name(DCS_STATUS_SUCCESS) == dcs_status_name(DCS_STATUS_SUCCESS));
    CHECK(strlen(dcs_status_advice(DCS_STATUS_PEER_RESET)) > 10);
    CHECK(dcs_status_errno(DCS_STATUS_SUCCESS) == 0 && dcs_status_errno(DCS_STATUS_TIMEOUT) == ETIMEDOUT);
    const struct dcs_operator_info *table = NULL;
    size_t count = dcs_operators(&table);
    CHECK(count == dcs_operators(NULL) && count >= 14);
    for (size_t at = 0; at < count; at++) {
        CHECK(dcs_op_from_name(table[at].name) == table[at].op && strlen(table[at].summary) > 0);
        CHECK((table[at].digest_size > 0) == (table[at].kind == DCS_KIND_DIGEST));
    }
    CHECK(table[0].op == DCS_OP_MD5 && table[0].digest_size == 16);
    CHECK(dcs_op_from_name(NULL) == 0 && dcs_op_from_name("") == 0 && dcs_op_from_name("\xff") == 0);
    CHECK(dcs_parameter_aes256_ctr(NULL, NULL, NULL) == 0 && dcs_parameter_level(NULL, 1) == 0);
    CHECK(dcs_parameter_aes256_xts(NULL, NULL, 512, 0) == 0);
    uint8_t block[DCS_AWS_CHUNKED_PARAMETERS];
    const struct dcs_aws_chunked plain = {.trailers = 1, .checksum = DCS_OP_CRC32C};
    CHECK(dcs_parameter_aws_chunked(block, &plain) == 16 && dcs_parameter_slice(NULL, 0, 0) == 0);
    uint8_t pattern[DCS_GREP_PARAMETERS];
    CHECK(dcs_parameter_grep(pattern, "a|b", DCS_GREP_INVERT) == 11 && pattern[0] == 2 && pattern[10] == 'b');
    CHECK(dcs_parameter_grep(NULL, "a", 0) == 0 && dcs_parameter_grep(pattern, NULL, 0) == 0);
    CHECK(dcs_parameter_grep(pattern, "(", 0) == 0 && dcs_parameter_grep(pattern, "a", 8) == 0);
    CHECK(dcs_parameter_grep(pattern, "", 0) == 0);
    uint8_t blowfish[DCS_BLOWFISH_CTR_PARAMETERS], knn[DCS_KNN_PARAMETERS], bitmap[DCS_BITMAP_PARAMETERS];
    CHECK(dcs_parameter_blowfish_ctr(blowfish, pattern, 56, pattern) == sizeof blowfish);
    CHECK(dcs_parameter_blowfish_ctr(blowfish, pattern, 57, pattern) == 0 && dcs_parameter_blowfish_ctr(blowfish, pattern, 3, pattern) == 0);
    CHECK(dcs_parameter_blowfish_ctr(NULL, pattern, 16, pattern) == 0 && dcs_parameter_blowfish_ctr(blowfish, NULL, 16, pattern) == 0);
    CHECK(dcs_parameter_knn(knn, 3, DCS_KNN_U8, pattern, 16) == 24 && knn[4] == 3 && knn[8] == pattern[0]);
    CHECK(dcs_parameter_knn(knn, 0, DCS_KNN_U8, pattern, 16) == 0 && dcs_parameter_knn(knn, 1, 2, pattern, 16) == 0);
    CHECK(dcs_parameter_knn(knn, 1, DCS_KNN_F32, pattern, 15) == 0 && dcs_parameter_knn(knn, 1, DCS_KNN_U8, pattern, 0) == 0);
    CHECK(dcs_parameter_knn(knn, 1, DCS_KNN_U8, NULL, 16) == 0 && dcs_parameter_knn(NULL, 1, DCS_KNN_U8, pattern, 16) == 0);
    CHECK(dcs_parameter_bitmap(bitmap, DCS_BITMAP_OR, 1) == 2 && bitmap[0] == 2 && bitmap[1] == 1);
    CHECK(dcs_parameter_bitmap(bitmap, 3, 0) == 0 && dcs_parameter_bitmap(bitmap, 0, 2) == 0 && dcs_parameter_bitmap(NULL, 0, 0) == 0);
    CHECK(dcs_parameter_aws_chunked(NULL, &plain) == 0 && dcs_parameter_aws_chunked(block, NULL) == 0);
    char scope[130] = "";
    struct dcs_aws_chunked request = {.key = block, .seed = block, .timestamp = "20130524T000000Z", .scope = scope};
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);
    memset(scope, 's', 128);
    CHECK(dcs_parameter_aws_chunked(block, &request) == sizeof block);
    scope[128] = 's';
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);
    scope[10] = 0;
    request.timestamp = "20130524T000000";
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);
    request.timestamp = NULL;
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);
    request = plain;
    request.checksum = DCS_OP_MD5;
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);
    request = plain;
    request.trailers = 2;
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);
    request = plain;
    request.reserved[5] = 1;
    CHECK(dcs_parameter_aws_chunked(block, &request) == 0);

    struct dcs_completion done;
    memset(&done, 0, sizeof done);
    char line[8];
    memset(line, 'x', sizeof line);
    CHECK(dcs_completion_sentence(&done, line, 5) == strlen("done: 0 bytes in, 0 bytes out"));
    CHECK(memcmp(line, "done\0xxx", 8) == 0);
    CHECK(dcs_completion_sentence(&done, NULL, 0) > 0 && dcs_completion_sentence(NULL, line, 5) == 0);
    CHECK(dcs_digest_text(NULL, line, 5) == 0 && dcs_digest_text(&done.result.digests[0], NULL, 0) == 0);
    memset(&done, 0xff, sizeof done); /* nonsense is said as such, without harm */
    CHECK(dcs_completion_sentence(&done, NULL, 0) > 0);
    CHECK(dcs_digest_text(&done.result.digests[0], NULL, 0) == 2 * DCS_DIGEST_MAX);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    texts();
    engine = start_engine();
    session = open_session(engine, 4);
    descriptors();
    gpus();
    chains();
    nulls_and_sizes();
    requests();
    peer_resets();
    broken_pipes();
    full();
    dcs_session_close(session);
    dcs_engine_stop(engine);
    printf("end\n");
    return 0;
}
