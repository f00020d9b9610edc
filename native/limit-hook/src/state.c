#include "state.h"

#include <limits.h>
#include <string.h>

struct reader {
    const char *at, *end;
};

struct text {
    const char *start;
    size_t length;
};

static bool skip_value(struct reader *reader, int depth);

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at)
        reader->at++;
}

/* Read `wanted` if it is next, after blanks. */
static bool read_mark(struct reader *reader, char wanted)
{
    skip_blanks(reader);
    if (reader->at == reader->end || *reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

static bool is_digit(const struct reader *reader)
{
    return reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
}

static bool skip_digits(struct reader *reader)
{
    if (!is_digit(reader))
        return false;
    while (is_digit(reader))
        reader->at++;
    return true;
}

static bool skip_any_of(struct reader *reader, const char *marks)
{
    if (reader->at == reader->end || !*reader->at || !strchr(marks, *reader->at))
        return false;
    reader->at++;
    return true;
}

static bool skip_number(struct reader *reader)
{
    skip_any_of(reader, "-");
    if (!skip_any_of(reader, "0") && !skip_digits(reader))
        return false;
    if (skip_any_of(reader, ".") && !skip_digits(reader))
        return false;
    if (!skip_any_of(reader, "eE"))
        return true;
    skip_any_of(reader, "+-");
    return skip_digits(reader);
}

/* Skip what follows a backslash. */
static bool skip_escape(struct reader *reader)
{
    if (!skip_any_of(reader, "u"))
        return skip_any_of(reader, "\"\\/bfnrt");
    for (int digit = 0; digit < 4; digit++)
        if (!skip_any_of(reader, "0123456789abcdefABCDEF"))
            return false;
    return true;
}

/* Read a string. `text` is what is between the quotes, escapes included. */
static bool read_string(struct reader *reader, struct text *text)
{
    if (!read_mark(reader, '"'))
        return false;
    text->start = reader->at;
    while (reader->at < reader->end && (unsigned char)*reader->at >= ' ') {
        char read = *reader->at++;

        if (read == '"') {
            text->length = (size_t)(reader->at - 1 - text->start);
            return true;
        }
        if (read == '\\' && !skip_escape(reader))
            return false;
    }
    return false;
}

static bool skip_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static bool skip_array(struct reader *reader, int depth)
{
    if (read_mark(reader, ']'))
        return true;
    do
        if (!skip_value(reader, depth))
            return false;
    while (read_mark(reader, ','));
    return read_mark(reader, ']');
}

static bool skip_object(struct reader *reader, int depth)
{
    struct text name;

    if (read_mark(reader, '}'))
        return true;
    do
        if (!read_string(reader, &name) || !read_mark(reader, ':') || !skip_value(reader, depth))
            return false;
    while (read_mark(reader, ','));
    return read_mark(reader, '}');
}

/* Skip a value, which may have others in it, `depth` deep. */
static bool skip_value(struct reader *reader, int depth)
{
    struct text text;

    skip_blanks(reader);
    if (reader->at == reader->end || depth == 0)
        return false;
    if (*reader->at == '"')
        return read_string(reader, &text);
    if (read_mark(reader, '{'))
        return skip_object(reader, depth - 1);
    if (read_mark(reader, '['))
        return skip_array(reader, depth - 1);
    return skip_word(reader, "true") || skip_word(reader, "false") || skip_word(reader, "null") || skip_number(reader);
}

/* Read an integer from 1 to INT_MAX, without a sign, a point or an exponent. */
static bool read_pid(struct reader *reader, int *pid)
{
    skip_blanks(reader);
    if (is_digit(reader) && *reader->at == '0')
        return false;
    for (*pid = 0; is_digit(reader); reader->at++)
        if (__builtin_mul_overflow(*pid, 10, pid) || __builtin_add_overflow(*pid, *reader->at - '0', pid))
            return false;
    return *pid > 0 && (reader->at == reader->end || !strchr(".eE", *reader->at));
}

/* Read a member of the outermost object. Returns what is wrong with it, or NULL. */
static const char *read_member(struct reader *reader, int *pid)
{
    struct text name;

    if (!read_string(reader, &name) || !read_mark(reader, ':'))
        return "it is not a JSON object";
    if (memchr(name.start, '\\', name.length))
        return "a member has a name with an escape";
    if (name.length != strlen("pid") || memcmp(name.start, "pid", name.length) != 0)
        return skip_value(reader, HAMI_STATE_DEPTH_MAX - 1) ? NULL : "it is not JSON, or is nested too deep";
    if (*pid)
        return "it has two members pid";
    return read_pid(reader, pid) ? NULL : "its member pid is not an integer from 1 on";
}

const char *hami_state_pid(const char *text, size_t length, int *pid)
{
    struct reader reader = {text, text + length};
    const char *problem = NULL;

    *pid = 0;
    if (!read_mark(&reader, '{'))
        return "it is not a JSON object";
    if (read_mark(&reader, '}'))
        return "it has no member pid";
    do
        problem = read_member(&reader, pid);
    while (!problem && read_mark(&reader, ','));
    if (problem)
        return problem;
    if (!read_mark(&reader, '}'))
        return "it is not a JSON object";
    skip_blanks(&reader);
    if (reader.at != reader.end)
        return "something follows the JSON object";
    return *pid ? NULL : "it has no member pid";
}
