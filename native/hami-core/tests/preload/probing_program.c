/* A program that only looks whether CUDA is there, and names that merely begin like the driver's. */
#include <dlfcn.h>
#include <stdio.h>

int cube_of(int number);

__attribute__((visibility("default"))) int cube_of(int number)
{
    return number * number * number;
}

static const char *yes(const void *found)
{
    return found ? "yes" : "no";
}

int main(void)
{
    const void *by_default = dlsym(RTLD_DEFAULT, "cuInit");
    const char *error = dlerror();
    const void *next = dlsym(RTLD_NEXT, "nvmlDeviceGetMemoryInfo_v9");
    const void *other = dlsym(RTLD_DEFAULT, "curl_easy_init");
    const void *own = dlsym(dlopen(NULL, RTLD_LAZY), "cube_of");

    printf("default: %s, next: %s, error: %s, other: %s, own: %s\n", yes(by_default), yes(next), yes(error), yes(other), yes(own));
    return 0;
}
