"""Which evidence of a case belongs to one run: files of several runs in one folder are told apart, not mixed.

traits     what each file tells of its run: when, on which devices, by which engine
meetings   whether two ranks hold the same collectives
names      failures of several runs, by the names of their files
telling    files that cannot be of one run, and the runs that follow from that
leaving    one run stays in the case, the others are named in the table `other_run`
"""
