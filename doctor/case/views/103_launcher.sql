-- launcher: launching threads by who launches at the same time; threads of one process that take turns, as a forward and a backward pass do, have
-- one id within the process, 0 for those of most work. Reads the relation launcher_thread (doctor.case.arrays.launchers).
CREATE TABLE launcher AS
SELECT source_id, pid, tid, launcher_id
FROM launcher_thread
ORDER BY source_id, pid, launcher_id, tid;
