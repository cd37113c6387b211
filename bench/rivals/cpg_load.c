/* One member of a closed process group of Corosync: sends, receives, checks and counts.
 *
 * usage: cpg_load INDEX MEMBERS SIZE RATE BEGIN WARM_UP SECONDS
 *
 * All members send messages of SIZE bytes in agreed order (CPG_TYPE_AGREED): RATE a second each, or, if RATE
 * is 0, as many as they can with at most WINDOW own messages undelivered. Without that limit libqb's send
 * spins while the daemon is behind, which takes the processor away from the daemon. BEGIN is a moment of
 * CLOCK_MONOTONIC in seconds; deliveries are counted for SECONDS after a WARM_UP from there.
 *
 * Prints one JSON object: deliveries a second, own included; how often a sender's numbers jumped; a hash of
 * the first deliveries in their order, which must be the same at every member; and, when a RATE was given, the
 * latency of each delivery of others' messages in microseconds.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 256, BURST = 64, MOST_MEMBERS = 64, HASHED = 1000, MOST_LATENCIES = 1 << 20 };
enum { LONGEST_WAIT_NS = 2000000, LINGER_NS = 300000000 };

struct header {
    uint64_t sent_ns;
    uint64_t number;
    uint32_t sender;
    uint32_t unused;
};

static uint64_t window_begin_ns, window_end_ns;
static uint64_t counted, total, gaps, own_delivered, hash = 1469598103934665603ull;
static uint64_t expected[MOST_MEMBERS];
static uint32_t own_index, members_seen;
static uint32_t *latencies_us;
static size_t latency_count;

static uint64_t now_ns(void)
{
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (uint64_t)moment.tv_sec * 1000000000ull + (uint64_t)moment.tv_nsec;
}

static void delivered(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t process,
                      void *body, size_t size)
{
    const struct header *message = body;
    uint64_t now = now_ns();
    if (size < sizeof *message || message->sender >= MOST_MEMBERS)
        return;
    if (now >= window_begin_ns && now < window_end_ns) {
        counted++;
        if (latencies_us && message->sender != own_index && latency_count < MOST_LATENCIES)
            latencies_us[latency_count++] = (uint32_t)((now - message->sent_ns) / 1000);
    }
    if (message->sender == own_index)
        own_delivered++;
    if (message->number != expected[message->sender])
        gaps++;
    expected[message->sender] = message->number + 1;
    if (total++ < HASHED)
        hash = (hash ^ (message->sender * 1000003ull + message->number)) * 1099511628211ull;
}

static void changed(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members,
                    size_t member_count, const struct cpg_address *left, size_t left_count,
                    const struct cpg_address *joined, size_t joined_count)
{
    members_seen = (uint32_t)member_count;
}

static cpg_handle_t join_group(struct cpg_name *group)
{
    cpg_model_v1_data_t model = {.cpg_deliver_fn = delivered, .cpg_confchg_fn = changed};
    cpg_handle_t handle;
    uint64_t deadline_ns = now_ns() + 15000000000ull;
    while (cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL) != CS_OK) {
        if (now_ns() > deadline_ns)
            exit(3);
        usleep(20000);
    }
    while (cpg_join(handle, group) != CS_OK) {
        if (now_ns() > deadline_ns)
            exit(4);
        usleep(20000);
    }
    return handle;
}

static void dispatch(cpg_handle_t handle)
{
    cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ALL);
    if (error != CS_OK && error != CS_ERR_TRY_AGAIN)
        exit(5);
}

/* Sends up to a burst while the window allows; says whether there may be more to send at once. */
static int send_burst(cpg_handle_t handle, struct header *message, struct iovec *body)
{
    for (int sent = 0; sent < BURST; sent++) {
        if (message->number - own_delivered >= WINDOW)
            return 0;
        message->sent_ns = now_ns();
        if (cpg_mcast_joined(handle, CPG_TYPE_AGREED, body, 1) != CS_OK)
            return 0;
        message->number++;
    }
    return 1;
}

static void report(double seconds, uint32_t members_at_begin)
{
    printf("{\"per_s\": %.1f, \"gaps\": %lu, \"members\": %u, \"hashed\": %s, \"order\": \"%lx\", \"latencies_us\": [",
           (double)counted / seconds, (unsigned long)gaps, members_at_begin, total >= HASHED ? "true" : "false",
           (unsigned long)hash);
    for (size_t index = 0; index < latency_count; index++)
        printf("%s%u", index ? ", " : "", latencies_us[index]);
    printf("]}\n");
}

static void wait_for_begin(cpg_handle_t handle, struct pollfd *readable, uint64_t begin_ns)
{
    while (now_ns() < begin_ns) {
        poll(readable, 1, 5);
        dispatch(handle);
    }
}

/* Sends one message when it is due; answers how long to wait for the next. */
static uint64_t send_due(cpg_handle_t handle, struct header *message, struct iovec *body, uint64_t *next_ns,
                         uint64_t pause_ns)
{
    uint64_t now = now_ns();
    if (now < *next_ns)
        return *next_ns - now;
    message->sent_ns = now;
    if (cpg_mcast_joined(handle, CPG_TYPE_AGREED, body, 1) == CS_OK) {
        message->number++;
        *next_ns += pause_ns;
    }
    return 0;
}

static void run(cpg_handle_t handle, struct pollfd *readable, struct header *message, struct iovec *body,
                uint64_t next_ns, uint64_t pause_ns)
{
    for (uint64_t now = now_ns(); now < window_end_ns + LINGER_NS; now = now_ns()) {
        uint64_t wait_ns = LONGEST_WAIT_NS;
        dispatch(handle);
        if (now < window_end_ns && pause_ns)
            wait_ns = send_due(handle, message, body, &next_ns, pause_ns);
        else if (now < window_end_ns && send_burst(handle, message, body))
            wait_ns = 0;
        struct timespec pause = {0, (long)(wait_ns < LONGEST_WAIT_NS ? wait_ns : LONGEST_WAIT_NS)};
        ppoll(readable, 1, &pause, NULL);
    }
}

int main(int count, char **arguments)
{
    if (count != 8)
        return 2;
    own_index = (uint32_t)atoi(arguments[1]);
    uint64_t members = (uint64_t)atoi(arguments[2]);
    size_t size = (size_t)atol(arguments[3]);
    double rate = atof(arguments[4]), seconds = atof(arguments[7]);
    uint64_t begin_ns = (uint64_t)(atof(arguments[5]) * 1e9);
    window_begin_ns = begin_ns + (uint64_t)(atof(arguments[6]) * 1e9);
    window_end_ns = window_begin_ns + (uint64_t)(seconds * 1e9);
    if (own_index >= MOST_MEMBERS || members < 1 || size < sizeof(struct header))
        return 2;
    struct header *message = calloc(1, size);
    message->sender = own_index;
    struct iovec body = {message, size};
    if (rate > 0)
        latencies_us = malloc(MOST_LATENCIES * sizeof *latencies_us);

    struct cpg_name group = {.length = 5, .value = "rival"};
    cpg_handle_t handle = join_group(&group);
    struct pollfd readable = {.events = POLLIN};
    cpg_fd_get(handle, &readable.fd);
    wait_for_begin(handle, &readable, begin_ns);
    uint32_t members_at_begin = members_seen;
    uint64_t pause_ns = rate > 0 ? (uint64_t)(1e9 / rate) : 0;
    /* Members take turns within a pause, so that the group's messages are spread evenly. */
    run(handle, &readable, message, &body, begin_ns + pause_ns * own_index / members, pause_ns);
    report(seconds, members_at_begin);
    cpg_leave(handle, &group);
    cpg_finalize(handle);
    return 0;
}
