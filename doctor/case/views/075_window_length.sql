-- A recording in which nothing takes any time still has a window: of one nanosecond, so that shares of it exist.
UPDATE steady_window SET until_ns = from_ns + 1 WHERE until_ns <= from_ns;
