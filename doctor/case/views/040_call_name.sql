-- call_name: what each distinct API function does. `base_name` is the function without the suffixes of the export and of API versions.
--   call_class: launch, graph, sync, copy, memset, alloc, module, capture, event, other
CREATE TYPE IF NOT EXISTS call_kind AS ENUM ('launch', 'graph', 'sync', 'copy', 'memset', 'alloc', 'module', 'capture', 'event', 'other');

-- What calls say of the steps that they fall in, which their rows are made with.
CREATE TYPE IF NOT EXISTS step_likeness AS ENUM ('usual', 'unusual');

CREATE TABLE call_name AS
WITH used AS (
    SELECT DISTINCT name_id FROM api_call
),
named AS (
    SELECT name_id, regexp_replace(text, '(_v\d+)?(_ptsz|_ptds)?(_v\d+)?$', '') AS base_name
    FROM used JOIN text ON text.text_id = used.name_id
)
SELECT name_id, base_name,
    (CASE
        WHEN regexp_matches(base_name, '^(cuda|cu|hip)Graph(Launch|ExecLaunch)') THEN 'graph'
        WHEN regexp_matches(base_name, '^(cuda|cu|hip)(Module|Ext|)Launch|^hipExtModuleLaunch|^hipExtLaunch') THEN 'launch'
        WHEN regexp_matches(base_name, 'Synchronize') THEN 'sync'
        WHEN regexp_matches(base_name, 'Capture|GraphInstantiate|GraphCreate|GraphAdd|GraphExecUpdate') THEN 'capture'
        WHEN regexp_matches(base_name, '^(cuda|cu|hip)Memcpy') THEN 'copy'
        WHEN regexp_matches(base_name, '^(cuda|cu|hip)Memset') THEN 'memset'
        WHEN regexp_matches(base_name, '^(cuda|hip)(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|HostMalloc|ExtMalloc)'
            || '|^(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|HostAlloc|FreeHost|AddressReserve|AddressFree)') THEN 'alloc'
        WHEN regexp_matches(base_name, '^(cu|hip)(Library|Module|Link)|FuncSetAttribute|KernelSetAttribute|GetFuncBySymbol|FuncSetCacheConfig') THEN 'module'
        WHEN regexp_matches(base_name, 'Event|StreamWait') THEN 'event'
        ELSE 'other'
    END)::call_kind AS call_class,
    -- copies that return only when done, whatever the memory; an Async call on pageable memory is told from its copy
    regexp_matches(base_name, '^(cuda|cu|hip)Memcpy') AND NOT regexp_matches(base_name, 'Async') AS is_blocking_copy
FROM named
ORDER BY name_id;

-- the names are as many as the recording has functions: an enumeration of this case, which needs a member even where there is none
DROP TYPE IF EXISTS call_function;
CREATE TYPE call_function AS ENUM (SELECT base_name FROM call_name UNION SELECT 'none' ORDER BY base_name);
ALTER TABLE call_name ALTER base_name TYPE call_function;
