// The fields of events: their names in maps, and their order in arrays.
#pragma once
#include <string_view>

namespace svc {

enum Field {
  Ignored, Type, EventType, SeqHashes, BlockHashes, ParentHash, TokenIds, BlockSize, LoraId, Medium, LoraName, Extras, GroupIdx, Spec,
  Window, Locality, Owner, Lookahead, Salt, Tenant, Backend, Model, EventId, Rank, Base, TpRank, HeadRank, PcpRank, DcpRank, PpRank, Layer, Object,
};

// The order of the fields after the tag if an engine sends arrays; further fields are missing or come only in maps.
inline constexpr Field storedFields[] = {BlockHashes, ParentHash, TokenIds, BlockSize, LoraId, Medium, LoraName, Extras, GroupIdx, Spec, Window, Locality, Owner, Ignored, Lookahead};
inline constexpr Field removedFields[] = {BlockHashes, Medium, GroupIdx, Locality, Owner};

inline Field fieldOf(std::string_view name) {
  switch (name.size()) {
    case 4: return name == "type" ? Type : Ignored;
    case 6: return name == "medium" ? Medium : Ignored;
    case 7: return name == "lora_id" ? LoraId : name == "dp_rank" ? Rank : name == "tp_rank" ? TpRank : name == "pp_rank" ? PpRank : Ignored;
    case 8:
      return name == "event_id" ? EventId : name == "locality" ? Locality : name == "pcp_rank" ? PcpRank : name == "dcp_rank" ? DcpRank
             : name == "layer_id" ? Layer : Ignored;
    case 9:
      return name == "token_ids" ? TokenIds : name == "lora_name" ? LoraName : name == "tenant_id" ? Tenant : name == "group_idx" ? GroupIdx
             : name == "ownership" ? Owner : Ignored;
    case 10:
      return name == "seq_hashes" ? SeqHashes : name == "event_type" ? EventType : name == "block_size" ? BlockSize : name == "extra_keys" ? Extras
             : name == "cache_salt" ? Salt : name == "model_name" ? Model : name == "backend_id" ? Backend : name == "object_key" ? Object : Ignored;
    case 11: return name == "parent_hash" ? ParentHash : Ignored;
    case 12: return name == "block_hashes" ? BlockHashes : Ignored;
    case 14: return name == "base_block_idx" ? Base : Ignored;
    case 15: return name == "additional_salt" ? Salt : name == "head_or_tp_rank" ? HeadRank : Ignored;
    case 17: return name == "parent_block_hash" ? ParentHash : Ignored;
    case 18: return name == "kv_cache_spec_kind" ? Spec : Ignored;
    case 19: return name == "lookahead_token_ids" ? Lookahead : Ignored;
    case 28: return name == "kv_cache_spec_sliding_window" ? Window : Ignored;
    default: return Ignored;
  }
}

}  // namespace svc
