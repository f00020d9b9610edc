/*
 * This process as a client of MPS: its connection to the control daemon, and what it may use of each GPU.
 *
 * CUDA_MPS_PIPE_DIRECTORY names the folder with the daemon's socket; without it /run/nvidia-mps and /tmp/nvidia-mps are tried. Without
 * a daemon there, or with one whose server does not run, the process uses the GPUs alone, and says nothing. The daemon's messages are
 * in mps/daemon.py. Later errors come from the daemon at any time, and stay: every call returns them.
 * Fork: a child drops its parent's connection.
 */
#include "cuda/device/mps.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "driver/variables.h"
#include "hardware/limits.h"

#define SEPARATOR "\x1f"
#define WHOLE 100.0

enum { MESSAGE_BYTES = 1 << 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for requests */
static int connection = -1;
static _Atomic int lasting; /* the error that every call returns, or 0 */
static struct schedule_client client;
static uint64_t memory_bytes;
static char devices[MESSAGE_BYTES];

static void forget_parent(void)
{
    close(connection);
    connection = -1;
}

static bool connect_to(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", folder);

    if (length < 0 || (size_t)length >= sizeof(address.sun_path))
        return false;
    connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof(address)) == 0)
        return true;
    close(connection);
    connection = -1;
    return false;
}

static bool find_daemon(void)
{
    const char *folder = variable("CUDA_MPS_PIPE_DIRECTORY");

    if (folder && folder[0])
        return connect_to(folder);
    return connect_to("/run/nvidia-mps") || connect_to("/tmp/nvidia-mps");
}

/* Note an error that the daemon has sent for every later call. Returns whether the message was one. */
static bool is_event(const char *message)
{
    int error;

    if (sscanf(message, "event" SEPARATOR "%d", &error) != 1)
        return false;
    atomic_store(&lasting, error);
    return true;
}

/* Send a message and wait for its answer. Returns false without one. */
static bool ask(const char *message, char *answer)
{
    ssize_t length = send(connection, message, strlen(message), MSG_NOSIGNAL);

    do {
        if (length >= 0)
            length = recv(connection, answer, MESSAGE_BYTES - 1, 0);
        if (length <= 0 && errno != EINTR)
            return false;
        answer[length > 0 ? length : 0] = '\0';
    } while (length <= 0 || is_event(answer));
    return true;
}

/* Return the error in an answer, or CUDA_SUCCESS. */
static CUresult error_in(const char *answer)
{
    int error;

    return sscanf(answer, "error" SEPARATOR "%d", &error) == 1 ? (CUresult)error : CUDA_SUCCESS;
}

/* Return the percentage that the program itself asks for, or 0 if it asks for none that is valid. */
static double own_percentage(void)
{
    const char *text = variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double percentage = text ? strtod(text, NULL) : 0;

    return percentage > 0 && percentage <= WHOLE ? percentage : 0;
}

static void write_command(char *text, size_t size)
{
    FILE *file = fopen("/proc/self/comm", "re");

    text[0] = '\0';
    if (file && fgets(text, (int)size, file))
        text[strcspn(text, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* Rounded down, then to an even number. */
static unsigned int multiprocessors_of(double percentage)
{
    unsigned int count = (unsigned int)(HW_MULTIPROCESSORS * percentage / WHOLE) / 2 * 2;

    return count > 2 ? count : 2;
}

static void read_terms(const char *answer)
{
    double percentage = WHOLE;
    unsigned long long number = 0, bytes = 0;
    int length = 0;

    sscanf(answer, "attached" SEPARATOR "%llu" SEPARATOR "%lf" SEPARATOR "%llu%n", &number, &percentage, &bytes, &length);
    client = (struct schedule_client){number, multiprocessors_of(percentage)};
    memory_bytes = bytes;
    snprintf(devices, sizeof(devices), "%s" SEPARATOR, answer + length);
}

CUresult fake_mps_attach(void)
{
    static char answer[MESSAGE_BYTES];
    char message[256], command[64];
    CUresult result;

    if (!find_daemon())
        return CUDA_SUCCESS;
    write_command(command, sizeof(command));
    snprintf(message, sizeof(message), "attach" SEPARATOR "%.9g" SEPARATOR "%s", own_percentage(), command);
    result = ask(message, answer) ? error_in(answer) : CUDA_SUCCESS;
    if (strncmp(answer, "attached", 8) == 0) {
        read_terms(answer);
        hw_become_mps_client();
        pthread_atfork(NULL, NULL, forget_parent);
    } else {
        close(connection);
        connection = -1;
    }
    return result;
}

bool fake_mps_has_device(const char *uuid)
{
    char word[128];

    snprintf(word, sizeof(word), SEPARATOR "%s" SEPARATOR, uuid);
    return !client.number || strstr(devices, word) != NULL;
}

static CUresult count_context(const char *verb, const char *uuid)
{
    char message[128], answer[MESSAGE_BYTES];
    CUresult result = CUDA_SUCCESS;

    if (connection < 0)
        return result;
    snprintf(message, sizeof(message), "%s" SEPARATOR "%s", verb, uuid);
    pthread_mutex_lock(&mutex);
    if (!ask(message, answer))
        atomic_store(&lasting, CUDA_ERROR_MPS_RPC_FAILURE);
    else
        result = error_in(answer);
    pthread_mutex_unlock(&mutex);
    return result == CUDA_SUCCESS ? fake_mps_check() : result;
}

CUresult fake_mps_open(const char *uuid)
{
    return count_context("open", uuid);
}

void fake_mps_close(const char *uuid)
{
    count_context("close", uuid);
}

CUresult fake_mps_check(void)
{
    char message[64];
    ssize_t length;

    if (connection < 0 || atomic_load(&lasting))
        return (CUresult)atomic_load(&lasting);
    pthread_mutex_lock(&mutex);
    length = recv(connection, message, sizeof(message) - 1, MSG_DONTWAIT);
    if (length > 0) {
        message[length] = '\0';
        is_event(message);
    } else if (length == 0 || (errno != EAGAIN && errno != EINTR)) {
        atomic_store(&lasting, CUDA_ERROR_MPS_RPC_FAILURE);
    }
    pthread_mutex_unlock(&mutex);
    return (CUresult)atomic_load(&lasting);
}

struct schedule_client fake_mps_client(void)
{
    return client;
}

unsigned int fake_mps_multiprocessors(void)
{
    return client.number ? client.multiprocessors : HW_MULTIPROCESSORS;
}

/* Return the bytes of a size such as 2G, or 0. */
static uint64_t size_of(const char *text)
{
    char *unit;
    uint64_t size = strtoull(text, &unit, 10);

    return *unit == 'G' ? size << 30 : *unit == 'M' ? size << 20 : *unit == 'K' ? size << 10 : 0;
}

/* Return the position of the device that an entry names: an ordinal or a UUID before `=`. -1 if this process does not see it. */
static int find_entry(const char *entry, const int *physical, int count)
{
    size_t length = strcspn(entry, "=");
    char *end;
    long ordinal = strtol(entry, &end, 10);

    if (end == entry + length)
        return ordinal < count ? (int)ordinal : -1;
    for (int position = 0; position < count; position++)
        if (strncmp(hw_device(physical[position])->uuid, entry, length) == 0)
            return position;
    return -1;
}

/* An entry for a device that the process does not see ends every limit, that of the namespace included. */
void fake_mps_pin(const int *physical, int count)
{
    const char *text = client.number ? variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") : NULL;
    uint64_t limits[HW_DEVICES_MAX];
    char list[4096], *rest = list;

    for (int position = 0; position < count; position++)
        limits[position] = memory_bytes;
    snprintf(list, sizeof(list), "%s", text ? text : "");
    for (char *entry; (entry = strsep(&rest, ",")) != NULL && entry[0];) {
        int position = find_entry(entry, physical, count);
        uint64_t bytes = size_of(entry + strcspn(entry, "=") + 1);

        if (position < 0)
            return;
        if (bytes && (!limits[position] || bytes < limits[position]))
            limits[position] = bytes;
    }
    for (int position = 0; position < count; position++)
        hw_limit_self(physical[position], limits[position]);
}
