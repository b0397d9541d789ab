-- gpu_sheet: what vendors state of their devices: memory, bandwidth, dense arithmetic by type (without sparsity; tensor cores; consumer cards
-- with 32-bit accumulation), links, power. One row a product, the more special name first; `source_url` is where the figures are stated.
-- NULL is not stated there. `is_confirmed` is false for products whose figures no public document of the vendor states: they are those of the same chip
-- (the link given), less the link where it was cut, or what resellers print. `nvlink` is the sum of both directions and all links of a device (for AMD: Infinity Fabric).
CREATE TABLE gpu_sheet AS
SELECT sheet_id, name_pattern, product_name, vendor, (memory_gb * 1e9)::BIGINT AS memory_bytes, rate_gb * 1e9 AS memory_rate_bytes_per_s,
    fp32 * 1e12 AS fp32_flop_hz, tf32 * 1e12 AS tf32_flop_hz, bf16 * 1e12 AS bf16_flop_hz, fp8 * 1e12 AS fp8_flop_hz, int8 * 1e12 AS int8_op_hz,
    nvlink_gb * 1e9 AS nvlink_bytes_per_s, pcie_generation, pcie_lanes AS pcie_lanes_count, compute_major, compute_minor, power AS power_stated_watts,
    is_integrated, sheet_id NOT IN (26, 27, 28, 29, 39, 43) AS is_confirmed, source_url
FROM (VALUES
    (10, 'gb300', 'GB300', 'nvidia', 288.0, 8000.0, 80.0, 1250.0, 2500.0, 5000.0, NULL, 1800.0, 5, 16, 10, 3, 1400.0, false, 'https://www.nvidia.com/en-us/data-center/gb300-nvl72/'),
    (11, '\bb300\b', 'B300', 'nvidia', 288.0, 8000.0, 75.0, 1100.0, 2250.0, 4500.0, NULL, 1800.0, 5, 16, 10, 3, 1100.0, false, 'https://www.nvidia.com/en-us/data-center/hgx/'),
    (12, 'gb200', 'GB200', 'nvidia', 186.0, 8000.0, 80.0, 1250.0, 2500.0, 5000.0, 5000.0, 1800.0, 5, 16, 10, 0, 1200.0, false, 'https://www.nvidia.com/en-us/data-center/gb200-nvl72/'),
    (13, '\bb200\b', 'B200', 'nvidia', 180.0, 7700.0, 75.0, 1100.0, 2250.0, 4500.0, 4500.0, 1800.0, 5, 16, 10, 0, 1000.0, false, 'https://www.nvidia.com/en-us/data-center/hgx/'),
    (14, 'gb10\b', 'GB10', 'nvidia', 128.0, 273.0, NULL, NULL, NULL, NULL, NULL, NULL, 5, NULL, 12, 1, 140.0, true, 'https://www.nvidia.com/en-us/products/workstations/dgx-spark/'),
    (20, 'gh200', 'GH200', 'nvidia', 96.0, 4000.0, 67.0, 494.0, 990.0, 1979.0, 1979.0, 900.0, 5, 16, 9, 0, 900.0, false, 'https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip'),
    (21, 'h200 nvl', 'H200 NVL', 'nvidia', 141.0, 4800.0, 60.0, 417.5, 835.5, 1670.5, 1670.5, 900.0, 5, 16, 9, 0, 600.0, false, 'https://www.nvidia.com/en-us/data-center/h200/'),
    (22, '\bh200\b', 'H200 SXM', 'nvidia', 141.0, 4800.0, 67.0, 494.5, 989.5, 1979.0, 1979.0, 900.0, 5, 16, 9, 0, 700.0, false, 'https://www.nvidia.com/en-us/data-center/h200/'),
    (23, 'h100 nvl', 'H100 NVL', 'nvidia', 94.0, 3900.0, 60.0, 417.5, 835.5, 1670.5, 1670.5, 600.0, 5, 16, 9, 0, 400.0, false, 'https://www.nvidia.com/en-us/data-center/h100/'),
    (24, 'h100.*pcie', 'H100 PCIe', 'nvidia', 80.0, 2000.0, 51.0, 378.0, 756.5, 1513.0, 1513.0, 600.0, 5, 16, 9, 0, 350.0, false, 'https://www.nvidia.com/content/dam/en-zz/Solutions/gtcs22/data-center/h100/PB-11133-001_v01.pdf'),
    (25, '\bh100\b', 'H100 SXM', 'nvidia', 80.0, 3350.0, 67.0, 494.5, 989.5, 1979.0, 1979.0, 900.0, 5, 16, 9, 0, 700.0, false, 'https://www.nvidia.com/en-us/data-center/h100/'),
    (26, 'h20-3e', 'H20-3e', 'nvidia', 141.0, 4800.0, 44.0, 74.0, 148.0, 296.0, 296.0, 900.0, 5, 16, 9, 0, 500.0, false, 'https://www.nvidia.com/en-us/data-center/h200/'),
    (27, '\bh20\b', 'H20', 'nvidia', 96.0, 4000.0, 44.0, 74.0, 148.0, 296.0, 296.0, 900.0, 5, 16, 9, 0, 400.0, false, 'https://www.nvidia.com/en-us/data-center/h100/'),
    (28, '\bh800\b', 'H800 SXM', 'nvidia', 80.0, 3350.0, 67.0, 494.5, 989.5, 1979.0, 1979.0, 400.0, 5, 16, 9, 0, 700.0, false, 'https://www.nvidia.com/en-us/data-center/h100/'),
    (29, '\ba800\b', 'A800 80GB', 'nvidia', 80.0, 1935.0, 19.5, 156.0, 312.0, NULL, 624.0, 400.0, 4, 16, 8, 0, 400.0, false, 'https://www.nvidia.com/en-us/data-center/a100/'),
    (30, 'a100\b.*pcie.*80|a100 80gb pcie', 'A100 80GB PCIe', 'nvidia', 80.0, 1935.0, 19.5, 156.0, 312.0, NULL, 624.0, 600.0, 4, 16, 8, 0, 300.0, false, 'https://www.nvidia.com/en-us/data-center/a100/'),
    (31, 'a100\b.*pcie', 'A100 40GB PCIe', 'nvidia', 40.0, 1555.0, 19.5, 156.0, 312.0, NULL, 624.0, 600.0, 4, 16, 8, 0, 250.0, false, 'https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf'),
    (32, 'a100\b.*80', 'A100 80GB SXM', 'nvidia', 80.0, 2039.0, 19.5, 156.0, 312.0, NULL, 624.0, 600.0, 4, 16, 8, 0, 400.0, false, 'https://www.nvidia.com/en-us/data-center/a100/'),
    (33, 'a100\b', 'A100 40GB SXM', 'nvidia', 40.0, 1555.0, 19.5, 156.0, 312.0, NULL, 624.0, 600.0, 4, 16, 8, 0, 400.0, false, 'https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf'),
    (34, '\ba30\b', 'A30', 'nvidia', 24.0, 933.0, 10.3, 82.0, 165.0, NULL, 330.0, 200.0, 4, 16, 8, 0, 165.0, false, 'https://www.nvidia.com/en-us/data-center/products/a30-gpu/'),
    (35, '\ba40\b', 'A40', 'nvidia', 48.0, 696.0, 37.4, 74.8, 149.7, NULL, 299.3, 112.5, 4, 16, 8, 6, 300.0, false, 'https://www.nvidia.com/en-us/data-center/a40/'),
    (36, '\ba10g\b', 'A10G', 'nvidia', 24.0, 600.0, NULL, NULL, NULL, NULL, NULL, NULL, 4, 16, 8, 6, 300.0, false, 'https://aws.amazon.com/ec2/instance-types/g5/'),
    (37, '\ba10\b', 'A10', 'nvidia', 24.0, 600.0, 31.2, 62.5, 125.0, NULL, 250.0, NULL, 4, 16, 8, 6, 150.0, false, 'https://www.nvidia.com/en-us/data-center/products/a10-gpu/'),
    (38, '\ba2\b', 'A2', 'nvidia', 16.0, 200.0, 4.5, 9.0, 18.0, NULL, 36.0, NULL, 4, 8, 8, 6, 60.0, false, 'https://www.nvidia.com/en-us/data-center/products/a2/'),
    (39, '\bl20\b', 'L20', 'nvidia', 48.0, 864.0, 59.8, 59.8, 119.5, 239.0, 239.0, NULL, 4, 16, 8, 9, 275.0, false, 'https://www.nvidia.com/en-us/data-center/l40/'),
    (40, 'l40s', 'L40S', 'nvidia', 48.0, 864.0, 91.6, 183.0, 362.05, 733.0, 733.0, NULL, 4, 16, 8, 9, 350.0, false, 'https://www.nvidia.com/en-us/data-center/l40s/'),
    (41, '\bl40\b', 'L40', 'nvidia', 48.0, 864.0, 90.5, 90.5, 181.05, 362.0, 362.0, NULL, 4, 16, 8, 9, 300.0, false, 'https://www.nvidia.com/en-us/data-center/l40/'),
    (42, '\bl4\b', 'L4', 'nvidia', 24.0, 300.0, 30.3, 60.0, 121.0, 242.5, 242.5, NULL, 4, 16, 8, 9, 72.0, false, 'https://www.nvidia.com/en-us/data-center/l4/'),
    (43, '\bl2\b', 'L2', 'nvidia', 24.0, 300.0, 24.1, 48.3, 96.5, 193.0, 193.0, NULL, 4, 16, 8, 9, 72.0, false, 'https://www.nvidia.com/en-us/data-center/l4/'),
    (50, 'v100.*pcie', 'V100 PCIe', 'nvidia', 32.0, 900.0, 14.0, NULL, 112.0, NULL, NULL, NULL, 3, 16, 7, 0, 250.0, false, 'https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf'),
    (51, 'v100', 'V100 SXM2', 'nvidia', 32.0, 900.0, 15.7, NULL, 125.0, NULL, NULL, 300.0, 3, 16, 7, 0, 300.0, false, 'https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf'),
    (52, '\bt4\b', 'T4', 'nvidia', 16.0, 320.0, 8.1, NULL, 65.0, NULL, 130.0, NULL, 3, 16, 7, 5, 70.0, false, 'https://www.nvidia.com/en-us/data-center/tesla-t4/'),
    (60, 'rtx pro 6000', 'RTX PRO 6000 Blackwell', 'nvidia', 96.0, 1792.0, 125.0, NULL, NULL, NULL, NULL, NULL, 5, 16, 12, 0, 600.0, false, 'https://www.nvidia.com/en-us/products/workstations/professional-desktop-gpus/rtx-pro-6000/'),
    (61, 'rtx 6000 ada', 'RTX 6000 Ada', 'nvidia', 48.0, 960.0, 91.1, 182.1, 364.2, 728.5, 728.5, NULL, 4, 16, 8, 9, 300.0, false, 'https://www.nvidia.com/en-us/products/workstations/rtx-6000/'),
    (62, 'rtx a6000', 'RTX A6000', 'nvidia', 48.0, 768.0, 38.7, 77.4, 154.8, NULL, 309.7, 112.5, 4, 16, 8, 6, 300.0, false, 'https://www.nvidia.com/en-us/products/workstations/rtx-a6000/'),
    (63, 'rtx a5000', 'RTX A5000', 'nvidia', 24.0, 768.0, 27.8, 55.6, 111.1, NULL, 222.2, 112.5, 4, 16, 8, 6, 230.0, false, 'https://www.nvidia.com/en-us/products/workstations/rtx-a5000/'),
    (64, 'rtx a4000', 'RTX A4000', 'nvidia', 16.0, 448.0, 19.2, 38.3, 76.7, NULL, 153.4, NULL, 4, 16, 8, 6, 140.0, false, 'https://www.nvidia.com/en-us/products/workstations/rtx-a4000/'),
    (70, 'rtx 5090', 'GeForce RTX 5090', 'nvidia', 32.0, 1792.0, 104.8, 104.8, 209.5, 419.0, 838.0, NULL, 5, 16, 12, 0, 575.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf'),
    (71, 'rtx 5080', 'GeForce RTX 5080', 'nvidia', 16.0, 960.0, 56.3, 56.3, 112.6, 225.1, 450.2, NULL, 5, 16, 12, 0, 360.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf'),
    (72, 'rtx 5070 ti', 'GeForce RTX 5070 Ti', 'nvidia', 16.0, 896.0, 43.9, 43.9, 87.9, 175.8, 351.5, NULL, 5, 16, 12, 0, 300.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf'),
    (73, 'rtx 4090', 'GeForce RTX 4090', 'nvidia', 24.0, 1008.0, 82.6, 82.6, 165.2, 330.3, 660.6, NULL, 4, 16, 8, 9, 450.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf'),
    (74, 'rtx 4080', 'GeForce RTX 4080', 'nvidia', 16.0, 716.8, 48.7, 48.7, 97.5, 194.9, 389.9, NULL, 4, 16, 8, 9, 320.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf'),
    (75, 'rtx 4070 ti', 'GeForce RTX 4070 Ti', 'nvidia', 12.0, 504.2, 40.1, 40.1, 80.2, 160.4, 320.8, NULL, 4, 16, 8, 9, 285.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf'),
    (76, 'rtx 3090 ti', 'GeForce RTX 3090 Ti', 'nvidia', 24.0, 1008.0, 40.0, 40.0, 80.0, NULL, 320.0, 112.5, 4, 16, 8, 6, 450.0, false, 'https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf'),
    (77, 'rtx 3090', 'GeForce RTX 3090', 'nvidia', 24.0, 936.0, 35.6, 35.6, 71.0, NULL, 284.0, 112.5, 4, 16, 8, 6, 350.0, false, 'https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf'),
    (78, 'rtx 3080', 'GeForce RTX 3080', 'nvidia', 10.0, 760.0, 29.8, 29.8, 59.5, NULL, 238.0, NULL, 4, 16, 8, 6, 320.0, false, 'https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf'),
    (79, 'rtx 2080 ti', 'GeForce RTX 2080 Ti', 'nvidia', 11.0, 616.0, 13.4, NULL, 53.8, NULL, 215.2, 100.0, 3, 16, 7, 5, 250.0, false, 'https://images.nvidia.com/aem-dam/en-zz/Solutions/design-visualization/technologies/turing-architecture/NVIDIA-Turing-Architecture-Whitepaper.pdf'),
    (90, 'mi355x', 'MI355X', 'amd', 288.0, 8000.0, 157.3, NULL, 2516.6, 5033.2, 5033.2, 1075.0, 5, 16, NULL, NULL, 1400.0, false, 'https://www.amd.com/en/products/accelerators/instinct/mi350/mi355x.html'),
    (91, 'mi325x', 'MI325X', 'amd', 256.0, 6000.0, 163.4, 653.7, 1307.4, 2614.9, 2614.9, 896.0, 5, 16, NULL, NULL, 1000.0, false, 'https://www.amd.com/en/products/accelerators/instinct/mi300/mi325x.html'),
    (92, 'mi300x', 'MI300X', 'amd', 192.0, 5300.0, 163.4, 653.7, 1307.4, 2614.9, 2614.9, 896.0, 5, 16, NULL, NULL, 750.0, false, 'https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html'),
    (93, 'mi250', 'MI250X', 'amd', 128.0, 3200.0, 47.9, NULL, 383.0, NULL, 383.0, 800.0, 4, 16, NULL, NULL, 560.0, false, 'https://www.amd.com/en/products/accelerators/instinct/mi200/mi250x.html')
) AS stated (sheet_id, name_pattern, product_name, vendor, memory_gb, rate_gb, fp32, tf32, bf16, fp8, int8, nvlink_gb, pcie_generation, pcie_lanes,
    compute_major, compute_minor, power, is_integrated, source_url)
ORDER BY sheet_id;

-- gpu_model: every device name of the case (where no tool tells one, the product that a text names) with the first line of the sheet that fits it; a name that is cut or unknown has no row, and a chip
-- for laptops is another product under the same number.
CREATE TABLE gpu_model AS
WITH named AS (
    SELECT name FROM gpu_sample WHERE name IS NOT NULL UNION SELECT name FROM device WHERE name IS NOT NULL
    UNION SELECT told FROM engine_setting WHERE setting = 'card' AND NOT EXISTS (SELECT 1 FROM gpu_sample WHERE name IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM device WHERE name IS NOT NULL)
)
SELECT name, gpu_sheet.*
FROM named JOIN gpu_sheet ON regexp_matches(lower(name), name_pattern)
WHERE NOT regexp_matches(lower(name), 'laptop|max-q|mobile')
QUALIFY row_number() OVER (PARTITION BY name ORDER BY sheet_id) = 1
ORDER BY name;
