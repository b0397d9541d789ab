"""One file per documented problem. A rule imports `doctor.rule` and the standard library, nothing else of ours."""
