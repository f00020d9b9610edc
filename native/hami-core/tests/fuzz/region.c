/*
 * Region files that others have written: the library attaches any of them, or keeps a private region, and stays within the file.
 *
 * An input is a recipe, as for the target `region` of Python: which file there is, its size if the first byte has its highest bit,
 * and patches, which are a place of three bytes, a length of one, and bytes.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>

#include "region.h"
#include "region_file.h"
#include "region_limits.h"
#include "region_map.h"

enum { PATCHES_MAX = 64, HEAD = 4, PATCH_HEAD = 4, PIECE = 4096 };

static char path[256];
static uint8_t newest[HAMI_REGION_FILE_BYTES];

static void two_devices(struct hami_inventory *inventory)
{
    inventory->count = 2;
    strcpy(inventory->uuids[0], "GPU-a");
    strcpy(inventory->uuids[1], "GPU-b");
}

/* Let go of the region, as a new process that never had it. */
static void detach(void)
{
    if (hami_region())
        munmap(hami_region(), sizeof(struct hami_region));
    hami_region_forget();
    hami_region_use(NULL, false);
}

static int open_file(void)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    PROMISE(file >= 0);
    return file;
}

static void remove_file(void)
{
    unlink(path);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    const char *folder = getenv("TMPDIR");
    int file;

    (void)count;
    (void)arguments;
    PROMISE(snprintf(path, sizeof(path), "%s/hami-fuzz-%d.cache", folder ? folder : "/tmp", (int)getpid()) < (int)sizeof(path));
    PROMISE(atexit(remove_file) == 0);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1m", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    hami_region_attach(two_devices);
    PROMISE(!hami_region_is_private());
    file = open_file();
    PROMISE(pread(file, newest, sizeof(newest), 0) == (ssize_t)sizeof(newest));
    close(file);
    detach();
    return 0;
}

static uint32_t three_bytes(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16;
}

/* Write the file of a recipe. */
static void write_file(const uint8_t *data, size_t size)
{
    static const uint32_t sizes[] = {sizeof(newest), 0, 804681, 1197897, 2008985};
    uint32_t file_bytes = sizes[(data[0] & 0x7f) % (sizeof(sizes) / sizeof(sizes[0]))];
    int file = open_file();

    if (data[0] & 0x80)
        file_bytes = three_bytes(data + 1) % (sizeof(newest) * 2);
    PROMISE(ftruncate(file, 0) == 0);
    PROMISE(pwrite(file, newest, file_bytes < sizeof(newest) ? file_bytes : sizeof(newest), 0) >= 0);
    PROMISE(ftruncate(file, file_bytes) == 0);
    data += HEAD;
    size -= HEAD;
    for (int patch = 0; file_bytes && patch < PATCHES_MAX && size > PATCH_HEAD; patch++) {
        size_t place = three_bytes(data) % file_bytes, length = data[3];

        length = length < size - PATCH_HEAD ? length : size - PATCH_HEAD;
        length = length < file_bytes - place ? length : file_bytes - place;
        PROMISE(pwrite(file, data + PATCH_HEAD, length, (off_t)place) == (ssize_t)length);
        size -= PATCH_HEAD + length;
        data += PATCH_HEAD + length;
    }
    close(file);
}

static void use(int device)
{
    hami_region_used(device);
    if (hami_region_charge(device, PIECE)) {
        hami_region_record_use(device);
        PROMISE(hami_region_own_data(device) == PIECE);
        hami_region_discharge(device, PIECE);
    }
    hami_region_limit(device);
    hami_region_core_percent(device);
    if (hami_region_hold(device, PIECE))
        hami_region_drop_hold(device, PIECE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return -1;
    write_file(data, size);
    hami_region_attach(two_devices);
    PROMISE(hami_region() && hami_region_count(hami_region()) >= 0 && hami_region_count(hami_region()) <= HAMI_SLOTS_MAX);
    PROMISE(hami_region_device("GPU-a") >= -1 && hami_region_device("GPU-a") < HAMI_DEVICES_MAX);
    if (hami_region_join() && hami_region_slot())
        for (int device = 0; device < HAMI_DEVICES_MAX; device++)
            use(device);
    hami_region_renew_inventory(two_devices);
    hami_region_sweep();
    hami_region_release();
    detach();
    return 0;
}
