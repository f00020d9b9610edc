/*
 * A program without CUDA. It prints its user and whether libvgpu.so is loaded. Built for several C libraries and ways to link.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is_mapped(const char *name)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;

    while (maps && fgets(line, sizeof(line), maps))
        found = found || strstr(line, name);
    if (maps)
        fclose(maps);
    return found;
}

int main(void)
{
    printf("user %d, %s\n", (int)geteuid(), is_mapped("libvgpu.so") ? "with the library" : "without the library");
    return 3;
}
