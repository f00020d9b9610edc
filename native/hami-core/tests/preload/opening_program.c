/*
 * Opens a library by a name that only this program's own search path (DT_RUNPATH) finds, and prints what dlerror says otherwise.
 *
 *   opening_program NAME
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    static const int modes[] = {RTLD_NOW, RTLD_NOW | RTLD_DEEPBIND};

    for (int index = 0; count > 1 && index < 2; index++) {
        void *plain = dlopen(arguments[1], modes[index]);
        const char *error = plain ? "opened" : dlerror();

        printf("%s\n", error);
    }
    return 0;
}
