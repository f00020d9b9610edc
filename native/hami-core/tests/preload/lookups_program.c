/*
 * Looks functions up in every way, and prints the library of each answer, or what dlerror says after the library's name. The output
 * must be the same with and without libvgpu.so.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define SYMBOLS(X) X(curl_easy_init) X(cublasCreate_v2) X(cudnnCreate) X(cuBe) X(nvmlish) X(cudaMalloc)

#define DEFINE(symbol)         \
    EXPORT int symbol(void);   \
    int symbol(void)           \
    {                          \
        return sizeof #symbol; \
    }
SYMBOLS(DEFINE)

static void say(const char *how, const char *symbol, const void *found)
{
    const char *error = dlerror();
    Dl_info where;

    if (found && dladdr(found, &where))
        printf("%s %s: %s, %s\n", how, symbol, strrchr(where.dli_fname, '/') + 1, error ? error : "no error");
    else
        printf("%s %s%s\n", how, symbol, error ? strchr(error, ':') : ": nothing, and no error");
}

static void look_up(const char *symbol)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    void *libc = dlopen("libc.so.6", RTLD_LAZY);

    say("default", symbol, dlsym(RTLD_DEFAULT, symbol));
    say("next", symbol, dlsym(RTLD_NEXT, symbol));
    say("next again", symbol, dlsym(RTLD_NEXT, symbol));
    say("program", symbol, dlsym(program, symbol));
    say("libc", symbol, dlsym(libc, symbol));
    say("versioned", symbol, dlvsym(libc, symbol, "GLIBC_2.17"));
    say("versioned next", symbol, dlvsym(RTLD_NEXT, symbol, "GLIBC_2.17"));
    say("wrong version", symbol, dlvsym(RTLD_DEFAULT, symbol, "NONE_1.0"));
}

int main(void)
{
    static const char *const others[] = {"printf", "clock_gettime", "cuInit", "cuGetProcAddress_v2", "nvmlInit_v2", "", "no_such"};

    setvbuf(stdout, NULL, _IOLBF, 0);
#define LOOK_UP(symbol) look_up(#symbol);
    SYMBOLS(LOOK_UP)
    for (size_t index = 0; index < sizeof(others) / sizeof(others[0]); index++)
        look_up(others[index]);
    return 0;
}
