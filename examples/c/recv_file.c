/*
 * Receives a file over TCP and says its MD5, in one command: socket -> md5 -> file.
 *
 *     recv_file PORT FILE         (port 0: any; it is printed)
 *
 * Like a server, it reads the first bytes itself to see what comes (here it only shows them). They are handed over as
 * the prefix, so that file and digest are whole.
 */
#include "dcs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Waits for one connection on the loopback interface. */
static int accept_one(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        return -1;
    }
    printf("listening on port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    int peer = accept(listener, NULL, NULL);
    close(listener);
    return peer;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: recv_file PORT FILE\n");
        return 2;
    }
    int file = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0) {
        perror(argv[2]);
        return 1;
    }
    int peer = accept_one(argv[1]);
    char head[16];
    ssize_t had = peer < 0 ? -1 : read(peer, head, sizeof head);
    if (had < 0) {
        perror("recv_file");
        return 1;
    }
    printf("begins with %zd bytes that were read already\n", had);

    struct dcs_engine_options options = {.size = sizeof options, .driver = DCS_DRIVER_CALLER};
    struct dcs_engine *engine;
    struct dcs_session *session;
    if (dcs_engine_start(&options, &engine) != 0 || dcs_session_open(engine, 1, &session) != 0) {
        perror("dcs");
        return 1;
    }

    const struct dcs_op through[] = {{.op = DCS_OP_MD5}};
    struct dcs_completion done;
    ssize_t got =
        dcs_recvfile(session, peer, file, NULL, SIZE_MAX, head, (size_t)had, through, 1, &done);
    if (got < 0) {
        char line[256];
        dcs_completion_sentence(&done, line, sizeof line);
        fprintf(stderr, "recv_file: %s; %s\n", line, dcs_status_advice(done.result.status));
    } else {
        char md5[33];
        dcs_digest_text(&done.result.digests[0], md5, sizeof md5);
        printf("%zd bytes received, md5 %s\n", got, md5);
    }

    dcs_session_close(session);
    dcs_engine_stop(engine);
    close(peer);
    close(file);
    return got < 0 ? 1 : 0;
}
