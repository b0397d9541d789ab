"""The pytest plugin: a fixture, a marker and `doctor.toml` as tests.

hooks      what pytest calls; imports nothing of the diagnosis until a test uses it
fixture    `diagnosis`: evidence named in a test
marks      `@pytest.mark.healthy`: what it demands, checked at collection
capture    the body of a marked test under the profiler of torch
items      `doctor.toml` as test items
telling    what a test leaves for the summary and for JUnit
hookspecs  what a conftest may say otherwise
"""
