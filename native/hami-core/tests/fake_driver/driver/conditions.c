#include "driver/conditions.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/variables.h"

/* One version of the file. The last line has no subject. */
struct version {
    uint64_t number;
    struct condition lines[];
};

static const char *folder;
static const uint64_t *changed;
static struct version *current;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static struct condition parsed(char *line)
{
    struct condition condition = {0};
    const char *word;

    line[strcspn(line, "\r\n")] = '\0';
    if ((word = strsep(&line, " ")) != NULL)
        snprintf(condition.subject, sizeof(condition.subject), "%s", word);
    if ((word = strsep(&line, " ")) != NULL)
        snprintf(condition.name, sizeof(condition.name), "%s", word);
    for (int index = 0; index < CONDITION_VALUES_MAX && (word = strsep(&line, " ")) != NULL; index++)
        snprintf(condition.value[index], sizeof(condition.value[index]), "%s", word);
    return condition;
}

static struct version *read_version(uint64_t number)
{
    char path[4096], line[512];
    size_t room = 16, count = 0;
    struct version *version = malloc(sizeof(*version) + room * sizeof(version->lines[0]));
    FILE *file;

    snprintf(path, sizeof(path), "%s/conditions", folder);
    file = fopen(path, "re");
    while (version && file && fgets(line, sizeof(line), file)) {
        version->lines[count++] = parsed(line);
        if (count == room)
            version = realloc(version, sizeof(*version) + (room *= 2) * sizeof(version->lines[0]));
    }
    if (file)
        fclose(file);
    if (version) {
        version->number = number;
        version->lines[count] = (struct condition){0};
    }
    return version;
}

static void open_folder(void)
{
    char path[4096];
    int descriptor;
    void *memory;

    folder = variable("FAKE_DRIVER_DIR");
    if (!folder || !folder[0])
        return;
    snprintf(path, sizeof(path), "%s/changed", folder);
    descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return;
    fchmod(descriptor, 0666);
    if (ftruncate(descriptor, sizeof(*changed)) == 0) {
        memory = mmap(NULL, sizeof(*changed), PROT_READ, MAP_SHARED, descriptor, 0);
        changed = memory == MAP_FAILED ? NULL : memory;
    }
    close(descriptor);
}

uint64_t conditions_version(void)
{
    pthread_once(&opened, open_folder);
    return changed ? __atomic_load_n(changed, __ATOMIC_ACQUIRE) : 0;
}

/* Return the present version of the file, or NULL without a folder. The number is read first, so a change meanwhile is not missed. */
static const struct version *present(void)
{
    uint64_t number = conditions_version();
    struct version *version = __atomic_load_n(&current, __ATOMIC_ACQUIRE);

    if (!changed || (version && version->number == number))
        return version;
    pthread_mutex_lock(&mutex);
    version = current;
    if (!version || version->number != number) {
        version = read_version(number);
        __atomic_store_n(&current, version, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
    return version;
}

const struct condition *conditions_find(const char *subject, const char *name, const struct condition *from)
{
    const struct version *version = from ? NULL : present();

    if (!from)
        from = version ? version->lines : NULL;
    for (; from && from->subject[0]; from++)
        if (strcmp(from->subject, subject) == 0 && strcmp(from->name, name) == 0)
            return from;
    return NULL;
}

int64_t conditions_number(const char *subject, const char *name, int64_t otherwise)
{
    const struct condition *condition = conditions_find(subject, name, NULL);

    return condition && condition->value[0][0] ? strtoll(condition->value[0], NULL, 10) : otherwise;
}
