"""What the engine counts while it runs: the proof that an option does what its name says."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Counts since the last reset; plain additions on the host, never a device value.

    Attributes:
        steps: steps launched.
        pieces: forward passes of the target model.
        graph_replays: forward passes that replayed a CUDA graph.
        mixed_graph_replays: of these, passes that feed prompts or unequal numbers of tokens.
        graph_padding_tokens: tokens of padding in those.
        graph_captures: CUDA graphs recorded.
        syncs: times the host waited for the device, the one wait for a step's tokens included.
        layer_syncs: of these, waits at the boundary of a layer.
        steps_overlapped: steps that were scheduled while an earlier one was in flight.
        pinned_copies: asynchronous copies to the device from pinned memory.
        pageable_copies: copies to the device from pageable memory.
        cache_flushes: times cached memory was given back to the driver.
        audits: times every block of the pool was checked.
        kv_blocks_peak: blocks of the pool in use at most.
        kv_tokens_peak: tokens that running requests have in the KV cache at most, shared ones counted for each.
        kv_blocks_used_sum: blocks in use, added up over steps.
        kv_slots_filled_sum: slots that hold a token, added up over steps.
        kv_slots_allocated_sum: slots of blocks in use, added up over steps.
        kv_bytes_copied: bytes moved because KV grows by concatenation.
        expert_visits: times a single expert was run by itself.
        gating_rounds: rounds in which experts were chosen one after the other; a replayed graph counts nothing.
        preemptions: requests that lost their blocks.
        swapped_out_blocks: blocks copied to the host.
        swapped_in_blocks: blocks copied back.
        prefix_hit_tokens: prompt tokens whose KV was found in the pool.
        prefill_tokens: tokens fed by prompts.
        decode_tokens: tokens fed by requests that already generated.
        step_tokens_peak: tokens fed by a single step at most.
        sampled_tokens: tokens drawn by the target model.
        drafted: tokens proposed by speculation.
        accepted: proposed tokens that were kept.
        verifications: times a request had drafts to verify.
        draft_passes: forward passes of the draft model.
        step_failures: steps that failed and were rolled back.
        schedule_ns: time in the scheduler.
    """

    steps: int = 0
    pieces: int = 0
    graph_replays: int = 0
    mixed_graph_replays: int = 0
    graph_padding_tokens: int = 0
    graph_captures: int = 0
    syncs: int = 0
    layer_syncs: int = 0
    steps_overlapped: int = 0
    pinned_copies: int = 0
    pageable_copies: int = 0
    cache_flushes: int = 0
    audits: int = 0
    kv_blocks_peak: int = 0
    kv_tokens_peak: int = 0
    kv_blocks_used_sum: int = 0
    kv_slots_filled_sum: int = 0
    kv_slots_allocated_sum: int = 0
    kv_bytes_copied: int = 0
    expert_visits: int = 0
    gating_rounds: int = 0
    preemptions: int = 0
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    prefix_hit_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    step_tokens_peak: int = 0
    sampled_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    verifications: int = 0
    draft_passes: int = 0
    step_failures: int = 0
    schedule_ns: int = 0

    def reset(self) -> None:
        """Set every count to zero."""
        for field in fields(self):
            setattr(self, field.name, 0)

    def as_dict(self) -> dict[str, int]:
        """All counts by name, in the order of their declaration."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
