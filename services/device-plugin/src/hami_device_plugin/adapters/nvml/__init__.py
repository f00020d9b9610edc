"""
What the plugin reads from NVML, and what it changes there: one module a subject.

`hamicommon.runtime.host.nvml` owns the library, its thread and the deadlines. The functions here call pynvml, so they
run only inside `Nvml.call`. May import pynvml and `decide`. Must never start a thread, or decide what an answer means.
"""
