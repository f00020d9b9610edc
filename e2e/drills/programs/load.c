/*
 * Open a library in an unusual way, and let it take device memory.
 *
 *   load deepbind|namespace LIBRARY DRIVER MIB...
 *   load copy LIBRARY COPY MIB...     a copy of the driver, opened after the driver itself
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    void *driver = strcmp(arguments[1], "copy") == 0 ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
    void *library = strcmp(arguments[1], "namespace") == 0 ? dlmopen(LM_ID_NEWLM, arguments[2], RTLD_NOW)
                                                           : dlopen(arguments[2], RTLD_NOW | (driver ? 0 : RTLD_DEEPBIND));
    int (*take)(int, char **) = library ? (int (*)(int, char **))(uintptr_t)dlsym(library, "take") : NULL;

    if (driver)
        dlsym(driver, "cuInit");
    if (!take) {
        fprintf(stderr, "load: %s\n", dlerror());
        return 1;
    }
    return take(count - 2, arguments + 2);
}
