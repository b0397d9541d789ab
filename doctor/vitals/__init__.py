"""What devices and the machine say now: NVML, /proc, control groups; one look, or samples over time."""
