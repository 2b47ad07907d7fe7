/* Calls at awkward moments: in a thread that is being cancelled, and in a signal handler that interrupts one on the same socket.
 * usage: awkward cancelled|cancelled-at-once|handler FILE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int pair[2], file;
static off_t size;
static volatile sig_atomic_t entered, handlers_errno;
static volatile long handlers_result;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* Waits until the other thread is in a blocking call: nothing reads, and the socket is full. */
static void wait_until_full(void)
{
    struct pollfd end = {.fd = pair[0], .events = POLLOUT};
    do
        usleep(1000);
    while (poll(&end, 1, 0));
}

static void *send_all(void *at_once)
{
    if (at_once)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (off_t at = 0; at < size;)
        if (sendfile(pair[0], file, &at, size - at) < 0 && errno != EINTR)
            die("sendfile");
    pthread_testcancel();
    return NULL;
}

static void *receive(void *sum)
{
    static char bytes[1 << 16];
    ssize_t count;
    while ((count = read(pair[1], bytes, sizeof bytes)) > 0)
        *(off_t *)sum += count;
    return NULL;
}

static void cancelled(int at_once)
{
    pthread_t sender, receiver;
    void *result;
    off_t sum = 0;
    pthread_create(&sender, NULL, send_all, at_once ? &size : NULL);
    wait_until_full();
    pthread_cancel(sender);
    pthread_create(&receiver, NULL, receive, &sum);
    pthread_join(sender, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    /* The thread's locks are released. */
    off_t at = 0;
    printf("then %zd\n", sendfile(pair[0], file, &at, 10));
    close(pair[0]);
    pthread_join(receiver, NULL);
    printf("all %d\n", at_once || sum == size + 10);
}

static void on_signal(int number)
{
    (void)number;
    off_t at = 0;
    entered = 1;
    handlers_result = sendfile(pair[0], file, &at, 100);
    handlers_errno = handlers_result < 0 ? errno : 0;
}

static pthread_t interrupted;

static void *interrupt_and_receive(void *sum)
{
    wait_until_full();
    pthread_kill(interrupted, SIGUSR1);
    while (!entered)
        usleep(1000);
    return receive(sum);
}

static void handler(void)
{
    pthread_t receiver;
    off_t sum = 0;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    interrupted = pthread_self();
    pthread_create(&receiver, NULL, interrupt_and_receive, &sum);
    send_all(NULL);
    close(pair[0]);
    pthread_join(receiver, NULL);
    printf("handler %ld %s\n", handlers_result, strerrorname_np(handlers_errno));
    printf("all %d\n", sum == size + (handlers_result > 0 ? handlers_result : 0));
}

int main(int count, char **arguments)
{
    struct stat stat;
    if (count != 3)
        return 2;
    file = open(arguments[2], O_RDONLY);
    if (file < 0 || fstat(file, &stat) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        die(arguments[2]);
    size = stat.st_size;
    if (!strcmp(arguments[1], "handler"))
        handler();
    else
        cancelled(!strcmp(arguments[1], "cancelled-at-once"));
    return 0;
}
