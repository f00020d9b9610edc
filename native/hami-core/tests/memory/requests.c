#include "requests.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "judge.h"

enum { NUMBERS = 64, NOWHERE = -1 };

struct request {
    _Atomic int device;         /* that a request in progress is for */
    _Atomic unsigned int kills; /* when it began */
    _Atomic uint64_t bytes[DEVICES], most;
};

struct requests {
    _Atomic unsigned int kills; /* odd while a process is being killed */
    struct request of[NUMBERS];
};

static struct requests *requests;

static void clear(struct request *request)
{
    for (int device = 0; device < DEVICES; device++)
        atomic_store(&request->bytes[device], 0);
    atomic_store(&request->device, NOWHERE);
}

void requests_prepare(void)
{
    requests = mmap(NULL, sizeof(*requests), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (requests == MAP_FAILED)
        fail("no memory for requests");
    requests_clear();
}

void requests_clear(void)
{
    for (int number = 0; number < NUMBERS; number++)
        clear(&requests->of[number]);
}

/* Ask the driver what a process has, or all of them. */
static uint64_t given(int device, pid_t pid)
{
    static uint64_t (*_Atomic truth)(int device, uint64_t pid);

    if (!atomic_load(&truth))
        atomic_store(&truth, (uint64_t (*)(int, uint64_t))dlsym(RTLD_DEFAULT, "fake_truth_memory"));
    return atomic_load(&truth)(device, (uint64_t)pid);
}

/* The driver is asked first: what a call takes or gives back after that, it still announces. */
static void note(int device)
{
    uint64_t needed = given(device, 0);

    for (int number = 0; number < NUMBERS; number++)
        needed += atomic_load(&requests->of[number].bytes[device]);
    for (int number = 0; number < NUMBERS; number++) {
        uint64_t most = atomic_load(&requests->of[number].most);

        if (atomic_load(&requests->of[number].device) != device)
            continue;
        while (most < needed && !atomic_compare_exchange_weak(&requests->of[number].most, &most, needed))
            continue;
    }
}

void request_begin(int number, int device, uint64_t most_bytes)
{
    struct request *own = &requests->of[number];

    atomic_store(&own->kills, atomic_load(&requests->kills));
    atomic_store(&own->most, 0);
    atomic_store(&own->bytes[device], most_bytes);
    atomic_store(&own->device, device);
    note(device);
}

uint64_t request_end(int number)
{
    struct request *own = &requests->of[number];
    unsigned int kills = atomic_load(&own->kills);
    uint64_t most;

    note(atomic_load(&own->device));
    most = atomic_load(&own->most);
    atomic_store(&own->bytes[atomic_load(&own->device)], 0);
    atomic_store(&own->device, NOWHERE);
    return kills % 2 || kills != atomic_load(&requests->kills) ? UINT64_MAX : most;
}

void release_begin(int number, int device, uint64_t most_bytes)
{
    for (int other = 0; other < DEVICES; other++) {
        if (most_bytes == UINT64_MAX)
            atomic_store(&requests->of[number].bytes[other], given(other, getpid()));
        else if (other == device)
            atomic_store(&requests->of[number].bytes[other], most_bytes);
    }
}

void release_end(int number)
{
    for (int device = 0; device < DEVICES; device++) {
        note(device);
        atomic_store(&requests->of[number].bytes[device], 0);
    }
}

void requests_begin_kill(void)
{
    atomic_fetch_add(&requests->kills, 1);
}

void requests_end_kill(int first_number, int end_number)
{
    for (int number = first_number; number < end_number; number++)
        clear(&requests->of[number]);
    atomic_fetch_add(&requests->kills, 1);
}
