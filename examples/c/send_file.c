/*
 * Sends a file over TCP and says its MD5, in one command: file -> md5 -> socket.
 *
 *     send_file FILE ADDRESS PORT
 *
 * The bytes go from the page cache or the disk to the socket through the engine; this program never touches them.
 */
#define _POSIX_C_SOURCE 200809L

#include "dcs.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const char *address, const char *port) {
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(address, port, &hints, &found) != 0) {
        return -1;
    }
    int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: send_file FILE ADDRESS PORT\n");
        return 2;
    }
    int file = open(argv[1], O_RDONLY);
    if (file < 0) {
        perror(argv[1]);
        return 1;
    }
    int peer = connect_to(argv[2], argv[3]);
    if (peer < 0) {
        fprintf(stderr, "%s port %s cannot be reached\n", argv[2], argv[3]);
        return 1;
    }

    /* One transfer at a time: this thread drives the engine itself while it waits. */
    struct dcs_engine_options options = {.size = sizeof options, .driver = DCS_DRIVER_CALLER};
    struct dcs_engine *engine;
    struct dcs_session *session;
    if (dcs_engine_start(&options, &engine) != 0 || dcs_session_open(engine, 1, &session) != 0) {
        perror("dcs");
        return 1;
    }

    const struct dcs_op through[] = {{.op = DCS_OP_MD5}};
    struct dcs_completion done;
    ssize_t sent = dcs_sendfile(session, peer, file, NULL, SIZE_MAX, through, 1, &done);
    if (sent < 0) {
        /* What went wrong, at which stage, and how much had arrived. */
        char line[256];
        dcs_completion_sentence(&done, line, sizeof line);
        fprintf(stderr, "send_file: %s; %s\n", line, dcs_status_advice(done.result.status));
    } else {
        char md5[33];
        dcs_digest_text(&done.result.digests[0], md5, sizeof md5);
        printf("%zd bytes sent, md5 %s\n", sent, md5);
    }

    dcs_session_close(session);
    dcs_engine_stop(engine);
    close(peer);
    close(file);
    return sent < 0 ? 1 : 0;
}
