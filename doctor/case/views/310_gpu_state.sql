-- gpu_look: every sample of every device, with whether the device was busy: half of the sample period, or, where that was not asked, drawing
-- 40 % of its power limit, or, where that was not asked either, told as not idle by its clock reasons. Idle devices lower clocks and links on purpose, so that no rule judges them. Link rates are GB/s a lane and direction.
CREATE TABLE gpu_look AS
WITH lane AS (
    SELECT * FROM (VALUES (1, 0.25e9), (2, 0.5e9), (3, 0.985e9), (4, 1.969e9), (5, 3.938e9), (6, 7.563e9)) AS lane (generation, rate_bytes_per_s)
)
SELECT gpu_sample.* REPLACE (coalesce(pcie_generation_max, pcie_generation_device_max, sheet.pcie_generation) AS pcie_generation_max),
    coalesce(busy_share >= 0.5, CASE WHEN is_idle THEN false END, power_watts >= 0.4 * power_limit_watts, NOT is_idle, false) AS is_busy,
    coalesce(is_throttled_sw_thermal, false) OR coalesce(is_throttled_hw_thermal, false)
        OR (coalesce(is_throttled_hw_slowdown, false) AND NOT coalesce(is_throttled_power_brake, false)
            AND temperature_celsius >= coalesce(temperature_slowdown_celsius - 5, 83)) AS is_thermal,
    coalesce(is_throttled_sw_thermal, is_throttled_hw_thermal, is_throttled_power_cap, is_throttled_clock_setting) IS NOT NULL AS is_reason_known,
    coalesce(pcie_generation_max, pcie_generation_device_max) IS NULL AND NOT sheet.is_confirmed AS is_link_unconfirmed,
    now_lane.rate_bytes_per_s * gpu_sample.pcie_lanes_count AS pcie_rate_bytes_per_s,
    most_lane.rate_bytes_per_s * coalesce(gpu_sample.pcie_lanes_max_count, sheet.pcie_lanes_count) AS pcie_rate_max_bytes_per_s
FROM gpu_sample
LEFT JOIN gpu_model AS sheet USING (name)
LEFT JOIN lane AS now_lane ON now_lane.generation = gpu_sample.pcie_generation
LEFT JOIN lane AS most_lane ON most_lane.generation = coalesce(pcie_generation_max, pcie_generation_device_max, sheet.pcie_generation)
ORDER BY device_id, source_id, look_id;

-- gpu_state: what the samples of a device say together; counts are of busy samples, clocks their medians, counters what grew between first and last.
CREATE TABLE gpu_state AS
SELECT device_id, any_value(name) AS name, count(*) AS sample_count, count(*) FILTER (is_busy) AS busy_count,
    count(*) FILTER (is_busy AND is_reason_known) AS reasoned_count,
    count(*) FILTER (is_busy AND is_thermal) AS thermal_count,
    count(*) FILTER (is_busy AND (is_throttled_hw_slowdown OR is_throttled_hw_thermal) AND is_thermal) AS hw_thermal_count,
    count(*) FILTER (is_busy AND is_throttled_power_cap) AS power_cap_count,
    count(*) FILTER (is_busy AND is_throttled_power_brake) AS power_brake_count,
    count(*) FILTER (is_busy AND is_throttled_clock_setting) AS clock_setting_count,
    median(sm_clock_hz) FILTER (is_busy) AS sm_clock_hz, min(sm_clock_hz) FILTER (is_busy) AS sm_clock_least_hz,
    max(sm_clock_hz) FILTER (is_busy) AS sm_clock_busy_most_hz, count(DISTINCT sm_clock_hz) FILTER (is_busy) AS sm_clock_count,
    count(sm_clock_hz) FILTER (is_busy AND busy_share >= 0.8) AS very_busy_count,
    max(sm_clock_max_hz) AS sm_clock_max_hz, median(sm_clock_application_hz) AS sm_clock_application_hz,
    median(memory_clock_hz) FILTER (is_busy) AS memory_clock_hz, max(memory_clock_max_hz) AS memory_clock_max_hz,
    median(power_watts) FILTER (is_busy) AS power_watts, max(power_watts) AS power_most_watts, min(power_limit_watts) AS power_limit_watts,
    max(power_limit_default_watts) AS power_limit_default_watts, max(power_limit_max_watts) AS power_limit_max_watts,
    max(temperature_celsius) AS temperature_celsius, min(temperature_slowdown_celsius) AS temperature_slowdown_celsius,
    max(pcie_rate_bytes_per_s) FILTER (is_busy) AS pcie_rate_bytes_per_s, max(pcie_rate_max_bytes_per_s) AS pcie_rate_max_bytes_per_s,
    coalesce(bool_or(is_link_unconfirmed), false) AS is_link_unconfirmed,
    arg_max(pcie_generation, pcie_rate_bytes_per_s) FILTER (is_busy) AS pcie_generation, max(pcie_generation_max) AS pcie_generation_max,
    arg_max(pcie_lanes_count, pcie_rate_bytes_per_s) FILTER (is_busy) AS pcie_lanes_count, max(pcie_lanes_max_count) AS pcie_lanes_max_count,
    max(time_ns) - min(time_ns) AS observed_ns,
    max(power_cap_ns) - min(power_cap_ns) AS power_cap_ns, max(power_brake_ns) - min(power_brake_ns) AS power_brake_ns,
    greatest(max(sw_thermal_ns) - min(sw_thermal_ns), max(hw_thermal_ns) - min(hw_thermal_ns)) AS thermal_ns,
    max(ecc_uncorrected_volatile_count) AS ecc_uncorrected_volatile_count, max(ecc_uncorrected_count) AS ecc_uncorrected_count,
    max(ecc_uncorrected_count) - min(ecc_uncorrected_count) AS ecc_uncorrected_new_count,
    max(remapped_uncorrected_count + coalesce(remapped_corrected_count, 0)) AS remapped_count,
    max(remapped_uncorrected_count + coalesce(remapped_corrected_count, 0))
        - min(remapped_uncorrected_count + coalesce(remapped_corrected_count, 0)) AS remapped_new_count,
    coalesce(bool_or(is_remap_pending), false) AS is_remap_pending, coalesce(bool_or(is_remap_failed), false) AS is_remap_failed,
    any_value(pci_bus_id) AS pci_bus_id, bool_and(is_persistence_on) AS is_persistence_on
FROM gpu_look
GROUP BY device_id
ORDER BY device_id;

-- gpu_busy_state: devices of gpu_state that were seen busy with something to judge: clocks, reasons or a link.
CREATE TABLE gpu_busy_state AS
SELECT * FROM gpu_state
WHERE busy_count > 0 AND (reasoned_count > 0 OR (sm_clock_hz IS NOT NULL AND sm_clock_max_hz IS NOT NULL) OR (power_watts IS NOT NULL AND power_limit_watts IS NOT NULL))
ORDER BY device_id;

-- gpu_link_state: devices whose PCIe link was seen under load, together with its most, and what the other devices of the case have.
CREATE TABLE gpu_link_state AS
SELECT *, max(pcie_rate_bytes_per_s) OVER () AS best_rate_bytes_per_s, count(*) OVER () AS seen_count
FROM gpu_state WHERE pcie_rate_bytes_per_s IS NOT NULL AND pcie_rate_max_bytes_per_s IS NOT NULL
ORDER BY device_id;

-- gpu_lane_state: devices that were only seen at rest, with the lanes of their link: power saving lowers the generation of a link, not its lanes.
CREATE TABLE gpu_lane_state AS
SELECT device_id, any_value(name) AS name, max(pcie_lanes_count) AS pcie_lanes_count, max(pcie_lanes_max_count) AS pcie_lanes_max_count,
    count(*) AS look_count
FROM gpu_look WHERE pcie_lanes_count > 0 AND pcie_lanes_max_count > 0
GROUP BY device_id HAVING NOT bool_or(is_busy)
ORDER BY device_id;

-- clock_ramp: times when a device became busy after at least 5 s of idling in a low state, and the clock it had by then.
CREATE TABLE clock_ramp AS
WITH marked AS (
    SELECT source_id, device_id, look_id, time_ns, sm_clock_hz, performance_state, is_persistence_on,
        coalesce(busy_share < 0.1, is_idle, false) AS is_resting, is_busy,
        max(sm_clock_max_hz) OVER (PARTITION BY source_id, device_id) AS sm_clock_max_hz
    FROM gpu_look WHERE time_ns IS NOT NULL
),
rested AS (
    SELECT *, max(CASE WHEN NOT is_resting THEN time_ns END) OVER earlier AS last_work_ns, min(time_ns) OVER (PARTITION BY source_id, device_id) AS first_ns,
        lag(performance_state) OVER samples AS performance_state_before, lag(sm_clock_hz) OVER samples AS sm_clock_before_hz, lag(is_resting) OVER samples AS is_resting_before
    FROM marked
    WINDOW samples AS (PARTITION BY source_id, device_id ORDER BY time_ns),
        earlier AS (PARTITION BY source_id, device_id ORDER BY time_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT source_id, device_id, time_ns, time_ns - coalesce(last_work_ns, first_ns) AS rest_ns, sm_clock_hz, sm_clock_max_hz,
    performance_state_before AS state_before_id, sm_clock_before_hz, is_persistence_on
FROM rested
WHERE NOT is_resting AND is_resting_before AND time_ns - coalesce(last_work_ns, first_ns) >= 5000000000
ORDER BY source_id, device_id, time_ns;
