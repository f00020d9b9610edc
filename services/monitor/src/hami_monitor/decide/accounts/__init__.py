"""
Decide how much device time each Pod has held and used, and how much of each device stood idle.

`price` says what part of a device a Pod's shares are. `book` adds up, and `book_text` is the book as a file.
May import the rest of `decide` and `hamicommon`. Must never read a clock, and never count the same time twice.
"""
