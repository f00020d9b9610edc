"""
What only a real driver can tell, asked of one: each question has what the fake driver answers, on which tests rely.

`question` is the form, `host` the machine that is asked, `memory` and `compute` have the questions. Must never ask by
anything that a real driver lacks.
"""
