// Reports of the index for people and snapshots: metrics, digests, pages of blocks.
#pragma once
#include "index.h"

namespace svc {

// The number of blocks and a digest per stream: equal contents give equal digests, in whatever order they came.
struct Tally {
  u64 blocks = 0, digest = 0;
};
std::vector<Tally> tallyStreams(const Index& index);
// JSON: {"count", "spaces": [{model, tenant, lora, salt, block_size, blocks, streams}], "next": cursor or null}: a page of the namespaces.
std::string describeSpaces(const Index& index, u32 cursor, u32 limit);
// JSON: {"blocks":[{space, hash, streams:[…]}], "next": number or null}, from block number `cursor` on.
std::string pageBlocks(const Index& index, u32 cursor, u32 limit, std::int64_t space);
// JSON: [{stream, subscription, backend, medium, rank, shard?}].
std::string describeStreams(const Index& index);
// JSON: the groups of an engine's KV cache.
std::string describeGroups(const Subscription& sub);
// JSON: [{stream, blocks, digest}] of the same streams.
std::string describeTally(const Index& index);

}  // namespace svc
