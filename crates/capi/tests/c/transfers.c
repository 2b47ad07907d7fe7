/* Transfers that are submitted: eventfd, cancel, free, close, stop; memory; order; time. */
#include "check.h"

static struct dcs_engine *engine;
static struct dcs_session *session;
static const struct dcs_op MD5 = {.op = DCS_OP_MD5};

static struct dcs_request request_from(int in, int out) {
    struct dcs_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.source.fd = in;
    request.destination.fd = out;
    request.length = DCS_LENGTH_TO_END;
    return request;
}

static struct dcs_transfer *submit(const struct dcs_request *request) {
    struct dcs_transfer *transfer = NULL;
    CHECK(dcs_transfer_submit(session, request, &transfer) == 0 && transfer != NULL);
    return transfer;
}

/* A transfer whose peer never reads: it stays where it is. `ends` are its socket's. */
static struct dcs_transfer *submit_stuck(int ends[2], int flags, size_t operators) {
    int in = open_input();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | flags, 0, ends) == 0);
    struct dcs_request request = request_from(in, ends[0]);
    request.chain = &MD5;
    request.operators = operators;
    struct dcs_transfer *transfer = submit(&request);
    close(in); /* the transfer has its own */
    return transfer;
}

static void close_both(int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

/* Many at once, one eventfd, none waited for. One is refused, and tells so the same way. */
static void eventfd_loop(void) {
    enum { COUNT = 40 };
    if (caller_driven) {
        FAILS(dcs_session_eventfd(session), EOPNOTSUPP);
        return;
    }
    int event = dcs_session_eventfd(session);
    CHECK(event >= 0 && dcs_session_eventfd(session) == event);
    struct pollfd poll_event = {.fd = event, .events = POLLIN};
    CHECK(poll(&poll_event, 1, 0) == 0);
    const struct dcs_op sha1 = {.op = DCS_OP_SHA1};
    struct dcs_transfer *transfers[COUNT];
    int in = open_input();
    for (size_t at = 0; at < COUNT; at++) {
        char name[32];
        snprintf(name, sizeof name, "many-%zu", at);
        int out = create(name);
        struct dcs_request request = request_from(in, out);
        request.source.offset = at * 1000;
        request.length = 100000 + at;
        request.chain = &sha1;
        request.operators = 1;
        transfers[at] = submit(&request);
        close(out);
    }
    close(in);
    size_t left = COUNT;
    while (left > 0) {
        CHECK(poll(&poll_event, 1, -1) == 1);
        uint64_t events;
        CHECK(read(event, &events, sizeof events) == sizeof events);
        for (size_t at = 0; at < COUNT; at++) {
            struct dcs_completion done;
            if (transfers[at] == NULL || dcs_transfer_poll(transfers[at], &done) == 0) {
                continue;
            }
            CHECK(done.result.status == DCS_STATUS_SUCCESS && done.result.bytes_out == 100000 + at);
            CHECK(dcs_transfer_poll(transfers[at], NULL) == 1 && dcs_transfer_wait(transfers[at], NULL) == 0);
            char name[32];
            snprintf(name, sizeof name, "many-%zu", at);
            say_same("input", at * 1000, 100000 + at, name, 0);
            say_digest(&done.result.digests[0], name, 0, 100000 + at);
            dcs_transfer_free(transfers[at]);
            transfers[at] = NULL;
            left--;
        }
    }
    struct dcs_request refused = request_from(-1, 1);
    struct dcs_transfer *transfer = submit(&refused);
    CHECK(poll(&poll_event, 1, 10000) == 1);
    struct dcs_completion done;
    FAILS(dcs_transfer_poll(transfer, &done), EBADF);
    CHECK(done.result.status == DCS_STATUS_BAD_HANDLE && done.result.stage == DCS_STAGE_SOURCE);
    dcs_transfer_free(transfer);
}

/* The eventfd tells of what was done before there was one. */
static void late_eventfd(void) {
    if (caller_driven) {
        return;
    }
    struct dcs_session *other = open_session(engine, 1);
    int in = open_input(), out = create("late");
    struct dcs_request request = request_from(in, out);
    struct dcs_transfer *transfer = NULL;
    CHECK(dcs_transfer_submit(other, &request, &transfer) == 0);
    CHECK(dcs_transfer_wait(transfer, NULL) == 0);
    struct pollfd poll_event = {.fd = dcs_session_eventfd(other), .events = POLLIN};
    CHECK(poll(&poll_event, 1, 0) == 1);
    dcs_transfer_free(transfer);
    dcs_session_close(other);
    close(in);
    close(out);
}

static void *cancel_later(void *transfer) {
    usleep(50000);
    CHECK(dcs_transfer_cancel(transfer) == 0);
    return NULL;
}

/* A stuck transfer is cancelled by another thread, while this one waits for it. What had been delivered is told. The
 * socket blocks or not, the chain is empty (the kernel's own copy) or not: the engine itself must never be stuck. */
static void cancel(int flags, size_t operators) {
    int ends[2];
    struct dcs_transfer *transfer = submit_stuck(ends, flags, operators);
    CHECK(dcs_transfer_poll(transfer, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel_later, transfer) == 0);
    struct dcs_completion done;
    FAILS(dcs_transfer_wait(transfer, &done), ECANCELED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(done.result.status == DCS_STATUS_CANCELLED && done.result.stage == DCS_STAGE_DESTINATION);
    CHECK(done.result.bytes_out > 0 && done.result.bytes_out < INPUT);
    if (operators > 0) {
        CHECK(done.result.digests[0].covered >= done.result.bytes_out);
        say_digest(&done.result.digests[0], "input", 0, done.result.digests[0].covered);
    }
    CHECK(dcs_transfer_cancel(transfer) == 0); /* too late, and no harm */
    FAILS(dcs_transfer_wait(transfer, NULL), ECANCELED);
    dcs_transfer_free(transfer);
    /* Exactly this many bytes are at the peer. */
    char name[32];
    snprintf(name, sizeof name, "cancelled-%d-%zu", flags != 0, operators);
    close(ends[0]);
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    struct drain drain;
    start_drain(&drain, ends[1], name);
    CHECK(end_drain(&drain) == done.result.bytes_out);
    say_same("input", 0, done.result.bytes_out, name, 0);
}

/* The same for a source that has nothing: a TCP socket, into a file and into a pipe. */
static void cancel_source(bool into_pipe, size_t operators) {
    int ends[2], pipes[2], out = create("nothing");
    connect_tcp(ends);
    CHECK(pipe(pipes) == 0);
    struct dcs_request request = request_from(ends[1], into_pipe ? pipes[1] : out);
    request.length = 100;
    request.chain = &MD5;
    request.operators = operators;
    struct dcs_transfer *transfer = submit(&request);
    CHECK(dcs_transfer_poll(transfer, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel_later, transfer) == 0);
    struct dcs_completion done;
    FAILS(dcs_transfer_wait(transfer, &done), ECANCELED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(done.result.status == DCS_STATUS_CANCELLED && done.result.bytes_in == 0);
    dcs_transfer_free(transfer);
    close_both(ends);
    close_both(pipes);
    close(out);
}

/* Freeing, closing, stopping: memory of a transfer in flight is the caller's again when the call returns. It is
 * unmapped then: an engine that still used it would crash. */
static char *map_input(void) {
    char *memory = malloc(INPUT);
    int in = open_input();
    CHECK(memory != NULL && read(in, memory, INPUT) == INPUT);
    close(in);
    return memory;
}

static struct dcs_transfer *submit_memory(char *memory, int ends[2]) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct dcs_request request = request_from(-1, ends[0]);
    request.source.memory = memory;
    request.source.memory_length = INPUT;
    request.prefix = memory;
    request.prefix_length = DCS_PREFIX_COPIED + 1;
    return submit(&request);
}

static void free_in_flight(void) {
    for (int round = 0; round < 20; round++) {
        int ends[2];
        char *memory = map_input();
        struct dcs_transfer *transfer = submit_memory(memory, ends);
        dcs_transfer_free(transfer);
        memset(memory, 0, INPUT);
        free(memory);
        /* What had arrived is what the memory held, not what was written to it since. */
        char name[32];
        snprintf(name, sizeof name, "freed-%d", round);
        close(ends[0]);
        struct drain drain;
        start_drain(&drain, ends[1], name);
        size_t bytes = end_drain(&drain), prefix = DCS_PREFIX_COPIED + 1;
        say_same("input", 0, bytes < prefix ? bytes : prefix, name, 0);
        if (bytes > prefix) {
            say_same("input", 0, bytes - prefix, name, prefix);
        }
    }
}

static void close_in_flight(void) {
    struct dcs_session *kept = session;
    session = open_session(engine, 4);
    int ends[2], others[2];
    char *memory = map_input();
    struct dcs_transfer *transfer = submit_memory(memory, ends), *other = submit_stuck(others, 0, 1);
    dcs_session_close(session);
    free(memory);
    struct dcs_completion done;
    FAILS(dcs_transfer_wait(transfer, &done), ESHUTDOWN);
    CHECK(done.result.status == DCS_STATUS_QUEUE_DELETED);
    FAILS(dcs_transfer_poll(other, NULL), ESHUTDOWN);
    CHECK(dcs_transfer_cancel(transfer) == 0);
    dcs_transfer_free(transfer);
    dcs_transfer_free(other);
    close_both(ends);
    close_both(others);
    session = kept;
}

/* File to memory, memory to file, a memory that is too small, one that is not all used. */
static void memory(void) {
    int in = open_input();
    char *buffer = malloc(INPUT);
    struct dcs_request request = request_from(in, -1);
    request.source.offset = 100;
    request.destination.memory = buffer;
    request.destination.memory_length = INPUT;
    struct dcs_completion done;
    struct dcs_transfer *transfer = submit(&request);
    CHECK(dcs_transfer_wait(transfer, &done) == 0 && done.result.bytes_out == INPUT - 100);
    dcs_transfer_free(transfer);
    int out = create("from-memory");
    struct dcs_request back = request_from(-1, out);
    back.source.memory = buffer;
    back.source.memory_length = INPUT - 100;
    back.destination.offset = 77;
    back.flags = DCS_FLAG_DURABLE;
    transfer = submit(&back);
    CHECK(dcs_transfer_wait(transfer, &done) == 0);
    dcs_transfer_free(transfer);
    say_same("input", 100, INPUT - 100, "from-memory", 77);
    request.destination.memory_length = 1000;
    memset(buffer, 0, 2000);
    transfer = submit(&request);
    FAILS(dcs_transfer_wait(transfer, &done), ERANGE);
    CHECK(done.result.status == DCS_STATUS_OUT_OF_RANGE && done.result.stage == DCS_STAGE_DESTINATION);
    dcs_transfer_free(transfer);
    for (int at = 0; at < 2000; at++) {
        CHECK(buffer[at] == 0);
    }
    free(buffer);
    close(in);
    close(out);
}

/* A session has room for that many, and a transfer takes its room until it is freed. */
static void session_full(void) {
    struct dcs_session *kept = session;
    session = open_session(engine, 2);
    int first[2], second[2], out = create("full"), in = open_input();
    struct dcs_transfer *stuck = submit_stuck(first, 0, 1), *other = submit_stuck(second, 0, 1), *third = NULL;
    struct dcs_request request = request_from(in, out);
    FAILS(dcs_transfer_submit(session, &request, &third), EAGAIN);
    CHECK(third == NULL);
    struct dcs_completion done;
    FAILS(dcs_sendfile(session, out, in, NULL, 5, NULL, 0, &done), EAGAIN);
    CHECK(done.result.status == DCS_STATUS_OUT_OF_RESOURCES && done.result.stage == DCS_STAGE_QUEUE);
    dcs_transfer_free(other);
    third = submit(&request);
    CHECK(dcs_transfer_wait(third, NULL) == 0);
    dcs_transfer_free(third);
    dcs_transfer_free(stuck);
    close_both(first);
    close_both(second);
    close(in);
    close(out);
    dcs_session_close(session);
    session = kept;
}

/* A transfer does not start before an earlier one with its request id; it ends when its time is over. */
static void order_and_time(void) {
    int ends[2], in = open_input(), out = create("ordered");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct dcs_request first = request_from(in, ends[0]);
    first.rid = 9;
    first.timeout_ms = 200;
    struct dcs_request second = request_from(in, out);
    second.rid = 9;
    struct dcs_transfer *stuck = submit(&first), *behind = submit(&second);
    CHECK(dcs_transfer_poll(behind, NULL) == 0);
    struct dcs_completion done, next;
    FAILS(dcs_transfer_wait(stuck, &done), ETIMEDOUT);
    CHECK(done.result.status == DCS_STATUS_TIMEOUT && done.result.stage == DCS_STAGE_DESTINATION);
    CHECK(done.result.finished - done.result.queued >= 200u * 1000 * 1000);
    CHECK(dcs_transfer_wait(behind, &next) == 0 && next.result.started >= done.result.finished);
    dcs_transfer_free(stuck);
    dcs_transfer_free(behind);
    close_both(ends);
    close(in);
    close(out);
}

/* The engine goes, with transfers in flight; what is left can be asked, closed and freed. */
static void stop_in_flight(void) {
    int ends[2], others[2];
    char *memory = map_input();
    struct dcs_transfer *transfer = submit_memory(memory, ends), *other = submit_stuck(others, 0, 1);
    dcs_engine_stop(engine);
    free(memory);
    struct dcs_completion done;
    FAILS(dcs_transfer_wait(transfer, &done), ESHUTDOWN);
    CHECK(done.result.status == DCS_STATUS_QUEUE_DELETED && done.result.stage != DCS_STAGE_NONE);
    FAILS(dcs_transfer_wait(other, &done), ESHUTDOWN);
    dcs_transfer_free(transfer);
    int in = open_input();
    struct dcs_request request = request_from(in, others[0]);
    FAILS(dcs_transfer_submit(session, &request, &transfer), ESHUTDOWN);
    FAILS(dcs_sendfile(session, others[0], in, NULL, 1, NULL, 0, NULL), ESHUTDOWN);
    close(in);
    dcs_session_close(session);
    dcs_transfer_free(other);
    close_both(ends);
    close_both(others);
}

static size_t open_descriptors(void) {
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

/* An engine with several cores: a session on each, and transfers of all of them at once. */
static void cores(void) {
    struct dcs_engine_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.io = io;
    options.cores = 3;
    options.sessions = 1;
    struct dcs_engine *wide = NULL;
    CHECK(dcs_engine_start(&options, &wide) == 0 && dcs_engine_cores(wide) == 3);
    CHECK(dcs_engine_cores(engine) == 1);
    int in = open_input();
    struct dcs_session *sessions[3], *none;
    struct dcs_transfer *transfers[3];
    char names[3][16];
    for (int at = 0; at < 3; at++) {
        /* Each core has room for one. */
        sessions[at] = open_session(wide, 4);
        snprintf(names[at], sizeof names[at], "core-%d", at);
        int out = create(names[at]);
        struct dcs_request request = request_from(in, out);
        request.chain = &MD5;
        request.operators = 1;
        CHECK(dcs_transfer_submit(sessions[at], &request, &transfers[at]) == 0);
        close(out);
    }
    FAILS(dcs_session_open(wide, 4, &none), EMFILE);
    for (int at = 0; at < 3; at++) {
        struct dcs_completion done;
        CHECK(dcs_transfer_wait(transfers[at], &done) == 0 && done.result.bytes_out == INPUT);
        say_digest(&done.result.digests[0], names[at], 0, INPUT);
        dcs_transfer_free(transfers[at]);
        dcs_session_close(sessions[at]);
    }
    dcs_engine_stop(wide);
    close(in);

    FAILS(dcs_engine_cores(NULL), EFAULT);
    options.driver = DCS_DRIVER_CALLER;
    FAILS(dcs_engine_start(&options, &wide), EINVAL);
    options.driver = DCS_DRIVER_THREAD;
    options.numa_node = 5000;
    FAILS(dcs_engine_start(&options, &wide), ENODEV);
    options.numa_node = 0;
    options.cores = DCS_CORES_ALL;
    options.flags = DCS_ENGINE_BIND_CPU;
    CHECK(dcs_engine_start(&options, &wide) == 0 && dcs_engine_cores(wide) >= 1);
    dcs_engine_stop(wide);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    size_t descriptors = open_descriptors();
    engine = start_engine();
    session = open_session(engine, 64);
    eventfd_loop();
    late_eventfd();
    for (size_t operators = 0; operators < 2; operators++) {
        cancel(0, operators);
        cancel(SOCK_NONBLOCK, operators);
        cancel_source(false, operators);
        cancel_source(true, operators);
    }
    free_in_flight();
    close_in_flight();
    memory();
    cores();
    session_full();
    order_and_time();
    stop_in_flight();
    CHECK(open_descriptors() == descriptors); /* none leaked */
    printf("end\n");
    return 0;
}
