"""Health checks: which evidence must be how healthy, told once and used by `doctor check` and by the pytest plugin.

check      what is asked: evidence, worst severity, allowed rules, bounds of vitals
judging    a diagnosis against what is asked: the breaches
settings   checks written in `doctor.toml` or in `[tool.doctor]` of pyproject.toml
running    evidence read and judged, one check after the other
"""
