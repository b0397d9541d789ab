"""What recorders say about their own work: known words and numbers, nothing that somebody may have put between them."""

from __future__ import annotations

import re

from doctor.formats.private_paths import without_folders

_WORD = re.compile(r"[A-Za-z0-9\x80-\U0010ffff]{3,}")
_PART = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
_PLAIN = re.compile(r"\d+[A-Za-z]{0,3}|[A-Za-z]{1,3}\d{1,4}|0x[0-9a-f]+")
"""Numbers, with or without a unit, and names of versions such as `sm90`."""
_WORDS = """
aarch abis able about absent absolute access accessdeniedexception account across active activities activity adapter
additional address administrator advance after agent agents ago all allocate allocated allocation allowed already
also although always amd ampere analysis analysisservice analyze and another any anything api apis application
applications apply architecture are arm array arrays asynchronous asynchronously asynchrony attach attached attempt
available avg backtrace backtraces bad based because been before began begin behavior being below between bits block
blocks broadcast broken buffer buffers busy but byte bytes cache cached call callback callbacks called calls can
cannot capability capture captured captures cause caused centos change changed check cli clock clocks closed code
codes collect collected collecting collection collector command common communication communicator compatible
complete completed completely compute configuration configured connect connected connection consider constant
container context contexts control converted converter copies copy core cores correct correctly correlation corrupt
corrupted could count counter counters cpp cpu cpus create created cublas cuda cudaprofilerstart cudaprofilerstop
cudnn cupti cuptiactivity cuptiactivityprofiler cuptievent currently cycle cycles daemon data date deadlock debian
debug debuginfod decode decoded deduce deduced default delay delayed denied deprecated destination detect detected
determine device devices did different directory disable disabled discarded disk dll dlopen does domain domains don
done down driver drivers drop dropped dtod dtoh due duplicate duration during dwarf each edition either elapsed
empty enable enabled enabling encountered end ended enough ensure enterprise entries entry enum environment epyc err
error errors event events every exceeded exception exceptions exe execute executed executing execution exist exists
exit exited expected export exported externally extra fail failed failing fails failure failures false fault faults
feature features few file files filled finalize finish finished first fixed flag flags flush flushed flushes
flushing follow following for format found frames freq frequency from full function functionality functioning
functions gather geforce generate generated generation generic get ghz gib global gold gpu gpus grace graph graphics
graphs greater group gtx guest handle handler hardware has hat have headers help higher holding host how htod htoh
icelake idle ids ignore ignored ignoring image images immediate imprecise improve inaccurate include included
incomplete inconsistent incorrect increase increasing index info information init initialization initialize
initialized initializing injection input insert inside install installed instead instructions instrumented
insufficient integrated intel interface internal interrupted interrupts interval into invalid invalidated invoked
invoking issue iterations its java join kernel kernels key kib kill killed kind known lack laptop large last late
later latest launch launched launches launching leak left legacy length less level levels lib libcupti libraries
library limit limitations limited line lines link linux list load loaded loading local lock log long longer lost
lower machine made main make malformed managed many map mapped mark marker markers match matched matching max
maximum may mean memory message messages metric metrics mhz mib might min minimum mismatch missed missing mode
module modules more most mpi multiple must name named names native nccl need needed negative neoverse network never
new newer next nic node nodes none normal not note nothing notification now nsight nsys number nvidia nvlink nvml
nvtx nvvideo object obtain occurred off offset old older once one only open opened opengl openmp oper operating
operation operations oprs opteron option options order other otherwise out output over overflow overflowed overhead
overlap own pageable parameter paranoid parent parse part partial partially pass passed pause paused peer pending
perf perform performance period periodic permission permissions permitted phase physical pid pinned platinum please
point points pool pop port possible post previous print privilege privileged privileges pro problem process
processed processes processing processor produced product professional profile profiled profiler profilers profiling
program properly provide provided ptop push python quadd quadro queries query queue queued range ranges rank rate
rather reached read reading ready reason reasons receive received record recorded recorder recording records red
reduce reduction refer released reload remaining remote removed repeated report reported reports request requested
requests require required requires reserved reset resource resources response restart result results resume retry
return returned returns rocky root rtx run running runtime ryzen same sample sampled samples sampling scan scatter
schedule scheduled scheduling sec second seconds section see select selected send sent server service session
sessions set setting settings several shared short should shutdown signal silver since single size sizes skip
skipped skipping sleep sli slow small socket software some source sources space specified specify speed spent start
started starting state states status stderr stdout step steps still stop stopped stopping storage store stored
stream streams string strings successful successfully such sudo sufficient sum super support supported supports
surface suse suspended switch symbol symbols synchronization synchronize sys sysmem system systems table take target
task temporarily temporary terminate terminated tesla texture than that the their them then there these they this
thread threadripper threads through throughput thus time timed timeout timeouts timer times timestamp timestamps
timing timings titan too tool tools torch total trace traced tracer traces tracing track transfer transfers tree
trigger triggered true truncated try trying two type types ubuntu unable unavailable undefined under unexpected
unified unknown unload unresolved unspecified unsupported until update updated upon usage use used user uses using
util valid value values variable verify version versions via vidmem virtual visible vulkan wait waited waiting
warning warnings was were what when where whether which while will window windows with within without work worker
working would write writing written wrong xeon you your zero
"""
"""Of the messages of Nsight Systems 2021 to 2026 and of Kineto, and what else such messages are made of."""
_KNOWN = frozenset(_WORDS.split())


def recorder_message(text: str) -> str:
    """A recorder's message; folders are gone, and letters of words that no recorder is known to use are an x each."""
    return _WORD.sub(_known, without_folders(text))


def recorder_message_in_place(text: bytes) -> bytes:
    """The same at equal length, folders overwritten as well."""
    return _WORD.sub(_known, text.decode("latin-1")).encode("latin-1")


def _known(match: re.Match[str]) -> str:
    word = match[0]
    if _PLAIN.fullmatch(word) or word.lower() in _KNOWN:
        return word
    parts = _PART.findall(word)
    is_known = sum(map(len, parts)) == len(word) and all(part.lower() in _KNOWN for part in parts)
    return word if is_known else "x" * len(word)
