-- hardware_evidence: what speaks of a failing device: errors of the driver in the kernel log (Xid) and the memory's own counters, one row a device.
-- Xids are sorted as in NVIDIA's catalogue (analyzing-xid-catalog): those that a device or its link raises; those of the device's own
-- processors, time-outs and recovery actions, behind which stands a device, its firmware or the driver; those that a program usually causes itself.
-- A lost device is told by several lines, and a program may repeat its error: each counts once.
CREATE TABLE hardware_evidence AS
WITH said AS (
    -- a link or a switch that says itself that nothing was lost
    SELECT *, regexp_matches(coalesce(message, ''), 'non-?fatal', 'i') AND (event_kind = 'sxid' OR xid BETWEEN 144 AND 150) AS is_harmless
    FROM kernel_log_event WHERE event_kind IN ('xid', 'sxid', 'fallen_off_bus', 'ecc_error')
),
event AS (
    SELECT coalesce(pci_bus_id, 'unknown') AS pci_bus_id, xid, event_kind, time_ns, message, name,
        NOT is_harmless AND (event_kind IN ('fallen_off_bus', 'sxid', 'ecc_error')
            OR coalesce(xid IN (48, 63, 64, 74, 79, 92, 94, 95, 136, 140, 144, 145, 146, 147, 148, 149, 150, 156, 171, 172), false)) AS is_hardware,
        is_harmless OR coalesce(xid IN (46, 61, 62, 109, 110, 119, 120, 121, 143, 154, 158), false) AS is_doubtful,
        coalesce(xid IN (8, 13, 31, 32, 43, 45, 68, 69), false) AS is_software
    FROM said
),
logged AS (
    SELECT pci_bus_id, count(*) FILTER (is_hardware AND event_kind IN ('xid', 'sxid')) + bool_or(event_kind = 'ecc_error')::INTEGER AS hardware_event_count,
        count(*) FILTER (is_software) AS software_event_count, count(*) FILTER (is_doubtful) AS doubtful_event_count,
        list_sort(list(DISTINCT xid) FILTER (is_doubtful)) AS doubtful_xids,
        count(*) AS event_count, list_sort(list(DISTINCT xid) FILTER (is_hardware AND xid IS NOT NULL)) AS hardware_xids,
        list_sort(list(DISTINCT xid) FILTER (NOT is_hardware AND NOT is_doubtful AND xid IS NOT NULL)) AS other_xids,
        bool_or(event_kind = 'fallen_off_bus' OR coalesce(xid = 79, false)) AS is_lost, min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM event GROUP BY pci_bus_id
),
counted AS (
    SELECT coalesce(pci_bus_id, 'device ' || device_id) AS pci_bus_id, device_id, name, ecc_uncorrected_volatile_count, ecc_uncorrected_count,
        ecc_uncorrected_new_count, remapped_count, remapped_new_count, is_remap_pending, is_remap_failed, sample_count
    FROM gpu_state
    WHERE coalesce(ecc_uncorrected_volatile_count, ecc_uncorrected_count, remapped_count) IS NOT NULL OR is_remap_pending OR is_remap_failed
)
SELECT coalesce(logged.pci_bus_id, counted.pci_bus_id) AS pci_bus_id, device_id, name, coalesce(hardware_event_count, 0) AS hardware_event_count,
    coalesce(software_event_count, 0) AS software_event_count, coalesce(doubtful_event_count, 0) AS doubtful_event_count,
    array_to_string(doubtful_xids, ', ') AS doubtful_xids, coalesce(event_count, 0) AS event_count,
    array_to_string(hardware_xids, ', ') AS hardware_xids, array_to_string(other_xids, ', ') AS other_xids, coalesce(is_lost, false) AS is_lost,
    ecc_uncorrected_volatile_count, ecc_uncorrected_count, ecc_uncorrected_new_count, remapped_count, remapped_new_count,
    coalesce(is_remap_pending, false) AS is_remap_pending, coalesce(is_remap_failed, false) AS is_remap_failed
FROM logged FULL JOIN counted ON logged.pci_bus_id = counted.pci_bus_id
ORDER BY 1;
