/* What the C tests share: checks, an engine as the arguments want it, files and sockets. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include "dcs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, \
                    errno, strerror(errno));                                                      \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* The call fails, with this errno. */
#define FAILS(call, error)       \
    do {                         \
        errno = 0;               \
        CHECK((call) == -1);     \
        CHECK(errno == (error)); \
    } while (0)

static bool caller_driven;
static uint8_t io;

/* Arguments: a folder to work in (with a file `input` of INPUT bytes), thread or caller, auto or plain. */
#define INPUT (4 << 20)
static inline void begin(int argc, char **argv) {
    CHECK(argc == 4 && chdir(argv[1]) == 0);
    caller_driven = strcmp(argv[2], "caller") == 0;
    io = strcmp(argv[3], "plain") == 0 ? DCS_IO_PLAIN : DCS_IO_AUTO;
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(100); /* a test that hangs fails */
}

static inline struct dcs_engine *start_engine(void) {
    struct dcs_engine_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.driver = caller_driven ? DCS_DRIVER_CALLER : DCS_DRIVER_THREAD;
    options.io = io;
    options.block_size = 65536;
    struct dcs_engine *engine = NULL;
    CHECK(dcs_engine_start(&options, &engine) == 0 && engine != NULL);
    return engine;
}

static inline struct dcs_session *open_session(struct dcs_engine *engine, uint16_t depth) {
    struct dcs_session *session = NULL;
    CHECK(dcs_session_open(engine, depth, &session) == 0 && session != NULL);
    return session;
}

static inline int open_input(void) {
    int fd = open("input", O_RDONLY);
    CHECK(fd >= 0);
    return fd;
}

static inline int create(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    return fd;
}

/* Both ends of a TCP connection over loopback. */
static inline void connect_tcp(int ends[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(ends[0] >= 0 && connect(ends[0], (struct sockaddr *)&address, length) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    close(listener);
}

/* A thread that takes all that comes from a descriptor into a file, and closes both. */
struct drain {
    pthread_t thread;
    int from, into;
    size_t bytes;
};

static inline void *drain_all(void *argument) {
    struct drain *drain = argument;
    char bytes[16384];
    for (ssize_t got; (got = read(drain->from, bytes, sizeof bytes)) > 0; drain->bytes += (size_t)got) {
        CHECK(write(drain->into, bytes, (size_t)got) == got);
    }
    close(drain->from);
    close(drain->into);
    return NULL;
}

static inline void start_drain(struct drain *drain, int from, const char *name) {
    drain->from = from;
    drain->into = create(name);
    drain->bytes = 0;
    CHECK(pthread_create(&drain->thread, NULL, drain_all, drain) == 0);
}

static inline size_t end_drain(struct drain *drain) {
    CHECK(pthread_join(drain->thread, NULL) == 0);
    return drain->bytes;
}

/* Lines for the test that runs this program: it has every one checked by an independent implementation. */

/* This digest is that of this many bytes of the file from there on. */
static inline void say_digest(const struct dcs_digest *digest, const char *file, size_t from, size_t length) {
    char text[2 * DCS_DIGEST_MAX + 1];
    CHECK(digest->size > 0 && dcs_digest_text(digest, text, sizeof text) == 2u * digest->size);
    const struct dcs_operator_info *table;
    size_t count = dcs_operators(&table);
    for (size_t at = 0; at < count; at++) {
        if (table[at].op == digest->operator_) {
            printf("digest %s %s %s %zu %zu\n", table[at].name, text, file, from, length);
            return;
        }
    }
    CHECK(!"a digest of an operator that there is");
}

/* This many bytes of one file from there on are in the other from there on. */
static inline void say_same(const char *file, size_t from, size_t length, const char *copy, size_t at) {
    printf("same %s %zu %zu %s %zu\n", file, from, length, copy, at);
}

#endif
