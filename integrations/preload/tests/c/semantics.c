/* A transcript of sendfile(2) as a program sees it: the same lines are printed whether the kernel carries out the calls or
 * the library does. Amounts that depend on timing are left out.  usage: semantics FILE */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 16

static const char *path;
static off_t size;
static volatile sig_atomic_t signals;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int open_file(void)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        die(path);
    return fd;
}

/* A connected pair: over TCP, or a Unix socket pair. pair[0] sends. */
static void connect_pair(int pair[2], int tcp)
{
    if (!tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            die("socketpair");
        return;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1))
        die("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (struct sockaddr *)&address, length))
        die("connect");
    pair[1] = accept(listener, NULL, NULL);
    if (pair[1] < 0)
        die("accept");
    close(listener);
}

static void nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Data that a peer received. */
struct peer {
    int fd;
    uint64_t hash;
    off_t bytes;
    pthread_t thread;
};

static void take(struct peer *peer, const unsigned char *bytes, ssize_t count)
{
    for (ssize_t i = 0; i < count; i++)
        peer->hash = (peer->hash ^ bytes[i]) * 1099511628211u;
    peer->bytes += count;
}

static void *receive(void *argument)
{
    struct peer *peer = argument;
    static __thread unsigned char buffer[1 << 16];
    ssize_t count;
    while ((count = read(peer->fd, buffer, sizeof buffer)) > 0)
        take(peer, buffer, count);
    return NULL;
}

static void start(struct peer *peer, int fd)
{
    *peer = (struct peer){.fd = fd, .hash = 14695981039346656037u};
    pthread_create(&peer->thread, NULL, receive, peer);
}

/* Ends the sending side, and prints what arrived. */
static void finish(const char *what, struct peer *peer, int sender)
{
    close(sender);
    pthread_join(peer->thread, NULL);
    close(peer->fd);
    printf("%s: %lld bytes %016llx\n", what, (long long)peer->bytes, (unsigned long long)peer->hash);
}

/* One call, its result and both positions. */
static ssize_t show(const char *what, int out, int in, off_t *offset, size_t count)
{
    off_t before = offset ? *offset : 0;
    errno = 0;
    ssize_t sent = sendfile(out, in, offset, count);
    int error = sent < 0 ? errno : 0;
    printf("%s: %zd %s, offset %lld", what, sent, strerrorname_np(error),
           offset ? (long long)(*offset - before) : -1LL);
    printf(", position %lld\n", (long long)lseek(in, 0, SEEK_CUR));
    return sent;
}

/* Sends all of a range, in any number of calls. */
static void send_range(int out, int in, off_t from, off_t to)
{
    while (from < to) {
        ssize_t sent = sendfile(out, in, &from, to - from);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd end = {.fd = out, .events = POLLOUT};
            poll(&end, 1, -1);
        } else if (sent < 0 && errno != EINTR) {
            die("sendfile");
        } else if (sent == 0) {
            printf("the file ends at %lld\n", (long long)from);
            return;
        }
    }
}

static void offsets(int tcp)
{
    int pair[2], in = open_file();
    struct peer peer;
    connect_pair(pair, tcp);
    start(&peer, pair[1]);
    off_t at = 0;
    show("from the start", pair[0], in, &at, 1000);
    show("goes on", pair[0], in, &at, 65536);
    show("goes back", pair[0], in, (at = 17, &at), 4099);
    show("by position", pair[0], in, NULL, 10);
    show("by position, on", pair[0], in, NULL, 100000);
    show("nothing", pair[0], in, &at, 0);
    lseek(in, size - 5, SEEK_SET);
    show("beyond the end", pair[0], in, NULL, 100);
    show("at the end", pair[0], in, NULL, 100);
    show("far behind the end", pair[0], in, (at = size + 1000, &at), 100);
    show("all", pair[0], in, (at = 0, &at), size);
    show("more than all", pair[0], in, (at = 3, &at), (size_t)-1 >> 1);
    finish("offsets", &peer, pair[0]);
    close(in);
}

static void errors(void)
{
    int pair[2], ends[2], in = open_file(), directory = open(".", O_RDONLY);
    int writer = open("/dev/null", O_WRONLY), dead;
    off_t at = 0;
    connect_pair(pair, 1);
    if (pipe(ends))
        die("pipe");
    show("no destination", -1, in, &at, 10);
    show("no source", pair[0], -1, &at, 10);
    show("closed destination", (dead = dup(in), close(dead), dead), in, &at, 10);
    show("negative offset", pair[0], in, (at = -1, &at), 10);
    at = 0;
    show("a directory", pair[0], directory, &at, 10);
    show("a pipe with an offset", pair[0], ends[0], &at, 10);
    show("not open for reading", pair[0], writer, &at, 10);
    show("to one open for reading", directory, in, &at, 10);
    show("to a pipe", ends[1], in, &at, 10);
    ssize_t sent = sendfile(pair[0], in, (off_t *)8, 10);
    printf("no offset: %zd %s\n", sent, strerrorname_np(errno));
    int lonely = socket(AF_INET, SOCK_STREAM, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    signal(SIGPIPE, SIG_IGN);
    show("not connected", lonely, in, &at, 10);
    show("datagrams to nobody", datagrams, in, &at, 10);
    shutdown(pair[0], SHUT_WR);
    show("after shutdown", pair[0], in, (at = 0, &at), 10);
    int others[] = {pair[0], pair[1], ends[0], ends[1], in, directory, writer, lonely, datagrams};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        close(others[i]);
}

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void broken_pipe(int tcp)
{
    int pair[2], in = open_file();
    off_t at = 0;
    connect_pair(pair, tcp);
    nonblocking(pair[0]);
    sendfile(pair[0], in, &at, size);
    close(pair[1]);
    usleep(20000);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGPIPE, &action, NULL);
    signals = 0;
    ssize_t sent;
    do {
        /* Everything may have fitted. */
        if (at == size)
            at = 0;
        sent = sendfile(pair[0], in, &at, size - at);
    } while (sent > 0 || (sent < 0 && errno != EPIPE && errno != ECONNRESET && errno != EAGAIN));
    if (errno == ECONNRESET)
        sent = sendfile(pair[0], in, &at, size - at);
    printf("peer gone: %zd %s, %d signals\n", sent, strerrorname_np(errno), (int)signals);
    signal(SIGPIPE, SIG_IGN);
    printf("ignored: %zd %s\n", sendfile(pair[0], in, &at, 100), strerrorname_np(errno));
    close(pair[0]);
    close(in);
}

/* A full socket reports that, and the bytes that it took are those reported. */
static void full(int tcp)
{
    int pair[2], in = open_file(), again = 0;
    off_t at = 0, told = 0;
    struct peer peer;
    connect_pair(pair, tcp);
    nonblocking(pair[0]);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){65536}, sizeof(int));
    for (;;) {
        ssize_t sent = sendfile(pair[0], in, &at, size - at);
        if (sent < 0 && errno == EAGAIN) {
            again++;
            break;
        }
        if (sent <= 0)
            break;
        told += sent;
    }
    printf("full: EAGAIN %d, some went %d, offset is what was told %d\n", again, told > 0, told == at);
    off_t before = at;
    ssize_t sent = sendfile(pair[0], in, &at, size - at);
    printf("still full: %zd %s, offset stays %d\n", sent, strerrorname_np(errno), at == before);
    start(&peer, pair[1]);
    send_range(pair[0], in, at, size);
    finish("full, then read", &peer, pair[0]);
    close(in);
}

/* A blocking call waits until everything is sent; a signal interrupts it. */
static void blocking(void)
{
    int pair[2], in = open_file();
    struct peer peer;
    connect_pair(pair, 1);
    start(&peer, pair[1]);
    off_t at = 0;
    show("blocking", pair[0], in, &at, size);
    finish("blocking", &peer, pair[0]);

    connect_pair(pair, 1);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){65536}, sizeof(int));
    setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &(int){65536}, sizeof(int));
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value.tv_usec = 100000, .it_interval.tv_usec = 100000};
    setitimer(ITIMER_REAL, &timer, NULL);
    ssize_t sent = sendfile(pair[0], in, (at = 0, &at), size);
    printf("interrupted: some %d, not all %d, offset %d\n", sent > 0, sent < size, at == sent);
    /* The remaining room may still be filled. */
    do
        sent = sendfile(pair[0], in, &at, size - at);
    while (sent > 0);
    printf("interrupted: %zd %s\n", sent, strerrorname_np(errno));
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    start(&peer, pair[1]);
    send_range(pair[0], in, at, size);
    finish("interrupted, then read", &peer, pair[0]);

    connect_pair(pair, 1);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){65536}, sizeof(int));
    setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &(int){65536}, sizeof(int));
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_usec = 50000}, sizeof(struct timeval));
    at = 0;
    do
        sent = sendfile(pair[0], in, &at, size - at);
    while (sent > 0 && at < size);
    printf("timeout: %zd %s\n", sent, strerrorname_np(errno));
    close(pair[0]);
    close(pair[1]);
    close(in);
}

/* A child sends, the parent sends, and one continues where the other ended. */
static void forks(void)
{
    int pair[2], in = open_file();
    struct peer peer;
    fflush(stdout);
    connect_pair(pair, 1);
    off_t half = size / 2 + 7;
    start(&peer, pair[1]);
    send_range(pair[0], in, 0, half);
    pid_t child = fork();
    if (child == 0) {
        send_range(pair[0], in, half, size);
        send_range(pair[0], in, 5, 50000);
        exit(0);
    }
    waitpid(child, NULL, 0);
    send_range(pair[0], in, half, size);
    finish("fork", &peer, pair[0]);

    for (int i = 0; i < 4; i++) {
        connect_pair(pair, 0);
        start(&peer, pair[1]);
        if ((child = fork()) == 0) {
            close(pair[1]);
            /* The position is shared with the parent. */
            lseek(in, 100 * i, SEEK_SET);
            sendfile(pair[0], in, NULL, 70000);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        printf("shared position: %lld\n", (long long)lseek(in, 0, SEEK_CUR));
        finish("child", &peer, pair[0]);
    }
    close(in);
}

/* Other descriptors for the same ends; the same descriptors for other ends. */
static void descriptors(void)
{
    int pair[2], in = open_file();
    struct peer peer, other;
    connect_pair(pair, 1);
    start(&peer, pair[1]);
    send_range(pair[0], in, 0, 300000);
    int out = dup(pair[0]), in2 = open_file();
    close(pair[0]);
    close(in);
    send_range(out, in2, 300000, size);
    finish("dup", &peer, out);

    for (int i = 0; i < 3; i++) {
        connect_pair(pair, 1);
        nonblocking(pair[0]);
        start(&peer, pair[1]);
        off_t at = 0;
        while (at < 200000 && sendfile(pair[0], in2, &at, 200000 - at) >= 0)
            ;
        int number = pair[0], fresh[2];
        connect_pair(fresh, 1);
        start(&other, fresh[1]);
        /* The old connection ends, the new one has its number, and goes on in the file where the old one stopped. */
        dup2(fresh[0], number);
        close(fresh[0]);
        pthread_join(peer.thread, NULL);
        printf("old number: what was told arrived %d\n", peer.bytes == at);
        close(peer.fd);
        send_range(number, in2, at, size);
        printf("new connection: the rest arrived ");
        fflush(stdout);
        close(number);
        pthread_join(other.thread, NULL);
        close(other.fd);
        printf("%d\n", other.bytes == size - at);
    }

    /* Two files in turns on one connection. */
    int twin = open_file();
    connect_pair(pair, 0);
    start(&peer, pair[1]);
    for (off_t at = 0; at < 400000; at += 100000) {
        send_range(pair[0], in2, at, at + 100000);
        if (write(pair[0], "between", 7) != 7)
            die("write");
        send_range(pair[0], twin, at, at + 50001);
    }
    finish("in turns", &peer, pair[0]);
    close(twin);
    close(in2);
}

static void *one_of_many(void *argument)
{
    intptr_t which = (intptr_t)argument;
    int pair[2], in = open_file();
    struct peer *peer = calloc(1, sizeof *peer);
    connect_pair(pair, which % 2);
    if (which % 3)
        nonblocking(pair[0]);
    start(peer, pair[1]);
    for (int i = 0; i < 4; i++)
        send_range(pair[0], in, which * 1000 * i, size - which);
    close(pair[0]);
    pthread_join(peer->thread, NULL);
    close(peer->fd);
    close(in);
    return peer;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, one_of_many, (void *)i);
    /* Forks meanwhile: no child may wait for a lock that a thread holds. */
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            int pair[2], in = open_file();
            connect_pair(pair, 0);
            alarm(20);
            signal(SIGALRM, SIG_DFL);
            _exit(sendfile(pair[0], in, NULL, 20000) != 20000);
        }
        int status;
        waitpid(child, &status, 0);
        if (status)
            printf("a child failed: %d\n", status);
        usleep(2000);
    }
    for (int i = 0; i < THREADS; i++) {
        struct peer *peer;
        pthread_join(thread[i], (void **)&peer);
        printf("thread %d: %lld bytes %016llx\n", i, (long long)peer->bytes, (unsigned long long)peer->hash);
        free(peer);
    }
}

int main(int count, char **arguments)
{
    struct stat stat;
    if (count != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    path = arguments[1];
    close(open_file());
    if (lstat(path, &stat))
        die(path);
    size = stat.st_size;
    signal(SIGPIPE, SIG_IGN);
    for (int tcp = 0; tcp < 2; tcp++) {
        offsets(tcp);
        full(tcp);
        broken_pipe(tcp);
    }
    errors();
    blocking();
    forks();
    descriptors();
    threads();
    puts("done");
    return 0;
}
