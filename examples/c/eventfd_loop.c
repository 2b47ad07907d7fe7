/*
 * sha256sum(1) of many files at once: many transfers, one eventfd, one poll(2) loop.
 *
 *     eventfd_loop FILE...
 *
 * A server's loop has the eventfd among its sockets; here it is alone. No thread of this program ever waits for a
 * transfer: the engine's own thread runs them all.
 */
#include "dcs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE 32

struct job {
    const char *name;
    struct dcs_transfer *transfer; /* NULL: this place is free */
};

/* file -> sha256 -> nowhere */
static int start(struct dcs_session *session, struct job *job, const char *name, int nowhere) {
    int file = open(name, O_RDONLY);
    if (file < 0) {
        perror(name);
        return -1;
    }
    const struct dcs_op through[] = {{.op = DCS_OP_SHA256}};
    struct dcs_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.source.fd = file;
    request.destination.fd = nowhere;
    request.length = DCS_LENGTH_TO_END;
    request.chain = through;
    request.operators = 1;
    job->name = name;
    int failed = dcs_transfer_submit(session, &request, &job->transfer);
    if (failed) {
        perror(name);
    }
    close(file); /* the transfer has its own */
    return failed;
}

/* Takes note of a job that is done: 1 where it is, and how many failed. */
static int finish(struct job *job, int *failures) {
    struct dcs_completion done;
    char text[256];
    switch (dcs_transfer_poll(job->transfer, &done)) {
    case 0:
        return 0;
    case 1:
        dcs_digest_text(&done.result.digests[0], text, sizeof text);
        printf("%s  %s\n", text, job->name);
        break;
    default:
        dcs_completion_sentence(&done, text, sizeof text);
        fprintf(stderr, "%s: %s; %s\n", job->name, text, dcs_status_advice(done.result.status));
        *failures += 1;
    }
    dcs_transfer_free(job->transfer);
    job->transfer = NULL;
    return 1;
}

int main(int argc, char **argv) {
    struct dcs_engine *engine;
    struct dcs_session *session;
    if (dcs_engine_start(NULL, &engine) != 0 || dcs_session_open(engine, AT_ONCE, &session) != 0) {
        perror("dcs");
        return 1;
    }
    struct job jobs[AT_ONCE] = {{NULL, NULL}};
    int next = 1, in_flight = 0, failures = 0;
    int nowhere = open("/dev/null", O_WRONLY);
    struct pollfd event = {.fd = dcs_session_eventfd(session), .events = POLLIN};

    while (next < argc || in_flight > 0) {
        for (int at = 0; at < AT_ONCE && next < argc; at++) {
            if (jobs[at].transfer == NULL) {
                int failed = start(session, &jobs[at], argv[next++], nowhere) != 0;
                failures += failed;
                in_flight += !failed;
            }
        }
        if (in_flight == 0) {
            continue;
        }
        if (poll(&event, 1, -1) < 0 && errno != EINTR) {
            perror("poll");
            return 1;
        }
        uint64_t count; /* read before the transfers are asked: what is done later makes it readable again */
        if (read(event.fd, &count, sizeof count) < 0 && errno != EAGAIN) {
            perror("eventfd");
            return 1;
        }
        for (int at = 0; at < AT_ONCE; at++) {
            if (jobs[at].transfer != NULL) {
                in_flight -= finish(&jobs[at], &failures);
            }
        }
    }

    close(nowhere);
    dcs_session_close(session);
    dcs_engine_stop(engine);
    return failures > 0 ? 1 : 0;
}
