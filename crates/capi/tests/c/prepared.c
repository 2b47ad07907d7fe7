/* Prepared transfers: bound once, submitted often. */
#include "check.h"

static struct dcs_engine *engine;
static struct dcs_session *session;
static const struct dcs_op MD5 = {.op = DCS_OP_MD5};

static struct dcs_request request_of(int in, int out) {
    struct dcs_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.source.fd = in;
    request.destination.fd = out;
    request.chain = &MD5;
    request.operators = 1;
    return request;
}

/* Pieces of a file, short ones and one of many blocks, to other places of another file. */
static void pieces(void) {
    static const struct {
        uint64_t from, to, length;
    } PIECES[] = {{0, 0, 64}, {4096, 64, 4096}, {100, 4160, 1}, {1000, 8192, 600000}};
    int in = open_input();
    int out = create("pieces");
    struct dcs_request request = request_of(in, out);
    struct dcs_prepared *prepared = NULL;
    CHECK(dcs_prepare(session, &request, &prepared) == 0 && prepared != NULL);
    close(in); /* it has its own */
    close(out);
    for (size_t at = 0; at < sizeof PIECES / sizeof PIECES[0]; at++) {
        struct dcs_completion done;
        CHECK(dcs_prepared_submit(prepared, PIECES[at].from, PIECES[at].to, PIECES[at].length) == 0);
        if (at % 2 == 0) {
            CHECK(dcs_prepared_wait(prepared, &done) == 0);
        } else {
            int is_done;
            while ((is_done = dcs_prepared_poll(prepared, &done)) == 0) {
            }
            CHECK(is_done == 1);
        }
        CHECK(dcs_prepared_wait(prepared, NULL) == 0);
        CHECK(done.result.bytes_out == PIECES[at].length);
        say_same("input", PIECES[at].from, PIECES[at].length, "pieces", PIECES[at].to);
        say_digest(&done.result.digests[0], "pieces", PIECES[at].to, PIECES[at].length);
    }
    dcs_prepared_free(prepared);
}

/* What cannot be is said, and what was prepared is good afterwards. */
static void in_vain(void) {
    int in = open_input();
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct dcs_request request = request_of(in, ends[0]);
    struct dcs_prepared *prepared = NULL;
    CHECK(dcs_prepare(session, &request, &prepared) == 0);
    FAILS(dcs_prepared_wait(prepared, NULL), EINVAL);
    FAILS(dcs_prepared_submit(prepared, 0, 7, 10), ESPIPE);
    CHECK(dcs_prepared_submit(prepared, 0, 0, 10) == 0);
    FAILS(dcs_prepared_submit(prepared, 0, 0, 10), EBUSY);
    CHECK(dcs_prepared_wait(prepared, NULL) == 0);
    CHECK(dcs_prepared_submit(prepared, UINT64_C(1) << 40, 0, 10) == 0);
    struct dcs_completion done;
    CHECK(dcs_prepared_wait(prepared, &done) == -1 && done.result.status == DCS_STATUS_OUT_OF_RANGE);
    FAILS(dcs_prepared_submit(prepared, UINT64_MAX - 5, 0, 10), ERANGE);
    CHECK(dcs_prepared_submit(prepared, 0, 0, 20) == 0);
    CHECK(dcs_prepared_wait(prepared, NULL) == 0);
    char arrived[30];
    CHECK(recv(ends[1], arrived, sizeof arrived, MSG_WAITALL) == sizeof arrived);
    /* One that is under way, and more than the socket takes, goes with what was prepared. */
    CHECK(dcs_prepared_submit(prepared, 0, 0, 4 << 20) == 0);
    dcs_prepared_free(prepared);
    dcs_prepared_free(NULL);
    close(in);
    close(ends[0]);
    close(ends[1]);
    request = request_of(-1, 1);
    FAILS(dcs_prepare(session, &request, &prepared), EBADF);
    request = request_of(0, 1);
    request.prefix = "x";
    request.prefix_length = 1;
    FAILS(dcs_prepare(session, &request, &prepared), EINVAL);
    FAILS(dcs_prepare(NULL, &request, &prepared), EFAULT);
    static const struct dcs_op NONE = {.op = 100};
    in = open_input();
    request = request_of(in, 1);
    request.chain = &NONE;
    FAILS(dcs_prepare(session, &request, &prepared), EOPNOTSUPP);
    close(in);
    FAILS(dcs_prepared_submit(NULL, 0, 0, 1), EFAULT);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    engine = start_engine();
    session = open_session(engine, 8);
    pieces();
    in_vain();
    dcs_session_close(session);
    dcs_engine_stop(engine);
    printf("end\n");
    return 0;
}
