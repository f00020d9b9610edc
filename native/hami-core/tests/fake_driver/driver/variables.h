/*
 * The fake driver's variables: from the environment, or else from the file /run/fake-driver.env.
 *
 * The file is for processes that lose their environment, such as those below `env -i`. A line is NAME=value. It is read once.
 */
#ifndef FAKE_VARIABLES_H
#define FAKE_VARIABLES_H

/* Return the value of a variable, or NULL. */
const char *variable(const char *name);

#endif
