/*
 * No key is left in memory once its transfer is over. A child has transfers with a key; the parent looks for the key in all
 * memory that the child can write to.
 */
#define _GNU_SOURCE
#include <dcs.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY 32

static void check(int right, const char *what)
{
    if (!right) {
        perror(what);
        exit(2);
    }
}

/* Byte `at` of the key: it is never in memory but where it is given to the library. */
static unsigned char byte_of_key(int at)
{
    return (unsigned char)(at * 37 + 91);
}

static int copies(pid_t child)
{
    char path[64], line[400];
    int found = 0;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)child);
    FILE *maps = fopen(path, "r");
    snprintf(path, sizeof path, "/proc/%d/mem", (int)child);
    int memory = open(path, O_RDONLY);
    check(maps != NULL && memory >= 0, "the child's memory");
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, access) != 3 || access[1] != 'w') {
            continue;
        }
        unsigned char *bytes = malloc(to - from);
        check(bytes != NULL, "malloc");
        ssize_t length = pread(memory, bytes, to - from, (off_t)from);
        for (ssize_t at = 0; at + KEY <= length; at++) {
            int same = 0;
            while (same < KEY && bytes[at + same] == byte_of_key(same)) {
                same++;
            }
            if (same == KEY) {
                printf("a copy at %lx of %s", from + (unsigned long)at, line);
                found++;
            }
        }
        free(bytes);
    }
    fclose(maps);
    close(memory);
    return found;
}

/* The key, then a counter. */
static unsigned char parameter[48];

static void fill(int with)
{
    volatile unsigned char *byte = parameter;
    for (int at = 0; at < (int)sizeof parameter; at++) {
        byte[at] = with && at < KEY ? byte_of_key(at) : 0;
    }
}

/* How the transfer with the key ends. */
enum end { RUNS, CANCELLED, WITHOUT_SLOT, TIMES_OUT, REFUSED, ENDS };

static void transfers(enum end end, int driver)
{
    struct dcs_engine_options options = {.size = sizeof options, .driver = (uint8_t)driver, .commands = 4, .sessions = 1};
    struct dcs_engine *engine;
    struct dcs_session *session;
    struct dcs_transfer *stuck[4], *keyed;
    struct dcs_completion done;
    char out[5][8];
    int source[2];

    check(dcs_engine_start(&options, &engine) == 0 && dcs_session_open(engine, 16, &session) == 0, "engine");
    check(pipe(source) == 0, "pipe");
    struct dcs_request request = {.size = sizeof request, .length = 1};
    request.source.fd = source[0];
    request.destination.memory_length = 8;
    int others = end == WITHOUT_SLOT || end == TIMES_OUT ? 4 : 0;
    for (int at = 0; at < others; at++) {
        request.destination.memory = out[at];
        check(dcs_transfer_submit(session, &request, &stuck[at]) == 0, "submit");
        dcs_transfer_poll(stuck[at], &done);
    }
    /* A unit of 0 bytes is none. */
    uint8_t operator = end == REFUSED ? DCS_OP_AES256_XTS : DCS_OP_AES256_CTR;
    struct dcs_op chain[1] = {{.op = operator, .parameter = parameter, .parameter_length = sizeof parameter}};
    request.destination.memory = out[4];
    request.chain = chain;
    request.operators = 1;
    request.timeout_ms = end == TIMES_OUT ? 20 : 0;
    fill(1);
    check(dcs_transfer_submit(session, &request, &keyed) == 0, "submit");
    fill(0);
    if (end == RUNS) {
        check(write(source[1], "a", 1) == 1, "write");
    } else if (end == CANCELLED || end == WITHOUT_SLOT) {
        dcs_transfer_poll(keyed, &done);
        dcs_transfer_cancel(keyed);
    }
    int result = dcs_transfer_wait(keyed, &done);
    check((result == 0) == (end == RUNS), "the transfer's end");
    dcs_transfer_free(keyed);
}

/* What the child has left behind when it stands still. */
static int left_behind(enum end end, int driver)
{
    int ready[2], go[2];
    char byte;

    check(pipe(ready) == 0 && pipe(go) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        transfers(end, driver);
        /* The engine's thread tells of the end before it is through with the round. */
        usleep(100000);
        check(write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1, "the parent");
        _exit(0);
    }
    close(ready[1]);
    check(read(ready[0], &byte, 1) == 1, "the child");
    int found = copies(child);
    check(write(go[1], "g", 1) == 1 && waitpid(child, NULL, 0) == child, "the child's end");
    return found;
}

int main(void)
{
    int found = 0;

    for (int driver = 0; driver < 2; driver++) {
        for (enum end end = RUNS; end < ENDS; end++) {
            int copies = left_behind(end, driver);
            if (copies > 0) {
                printf("driver %d, end %d: %d copies of the key\n", driver, (int)end, copies);
            }
            found += copies;
        }
    }
    return found > 0;
}
