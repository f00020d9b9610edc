/*
 * Space on the disk for a file that is written through a mapping.
 *
 * A store to a mapped page that the file system cannot back ends the process with SIGBUS. So the whole file is allocated before it
 * is mapped. File systems that copy what they rewrite (btrfs and ZFS with snapshots) can still run out of space later.
 */
#ifndef HAMI_FILE_SPACE_H
#define HAMI_FILE_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Make a file at least `bytes` long, with space for all of them. Its content stays, and what is new reads as 0. Returns false, with
 * errno, if there is no space, or if the process may not write so large a file. Sends no signal. Where the file system cannot
 * allocate, zeros are written behind the end; older holes stay.
 */
bool hami_file_allocate(int file, off_t bytes);

/*
 * Map the file `<region><suffix>`, which all users of the container share, made if necessary, with at least so many bytes. Never
 * shortened, so mappings of other processes stay valid. Returns NULL, and says that with its consequence, if it cannot be used.
 */
void *hami_file_map_beside_region(const char *suffix, size_t bytes, const char *consequence);

#endif
