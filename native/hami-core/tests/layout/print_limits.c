/*
 * Print what the library reads from limits files: one line of JSON for each path.
 */
#include <stdio.h>

#include "limits_file.h"

/* Print a text as hexadecimal digits, because it may contain anything. */
static void print_hex(const char *text)
{
    putchar('"');
    for (; *text; text++)
        printf("%02x", (unsigned char)*text);
    putchar('"');
}

static void print_file(const struct hami_limits_file *file)
{
    printf("{\"is_read\": %s, \"devices\": [", file->state == HAMI_LIMITS_READ ? "true" : "false");
    for (int index = 0; index < file->devices; index++) {
        printf("%s[", index ? ", " : "");
        print_hex(file->device[index].uuid);
        printf(", %llu, %llu]", (unsigned long long)file->device[index].memory_bytes,
               (unsigned long long)file->device[index].core_percent);
    }
    printf("], \"A\": ");
    print_hex(hami_limits_setting(file, "A") ? hami_limits_setting(file, "A") : "unset");
    puts("}");
}

int main(int count, char **paths)
{
    static struct hami_limits_file file;

    for (int index = 1; index < count; index++) {
        hami_limits_read(paths[index], &file);
        print_file(&file);
    }
    return 0;
}
