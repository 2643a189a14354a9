// Writes the whole index: tables in order, then the block arrays in their memory layout, then a checksum.
#include "index.h"

namespace svc {
namespace {

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const std::function<void(const u8*, std::size_t)>& put) : put_(put) {
    XXH3_64bits_reset(&sum_);
    piece_.reserve(pieceBytes);
  }
  template <typename T>
  void number(T value) {
    raw(&value, sizeof value);
  }
  void text(std::string_view value) {
    number<u64>(value.size());
    raw(value.data(), value.size());
  }
  void raw(const void* from, std::size_t size) {
    if (size == 0) return;
    const auto* bytes = static_cast<const u8*>(from);
    if (piece_.size() + size > pieceBytes) flush();
    if (size > pieceBytes) give(bytes, size);
    else piece_.insert(piece_.end(), bytes, bytes + size);
  }
  // Appends the checksum of all bytes before.
  void end() {
    flush();
    const u64 sum = XXH3_64bits_digest(&sum_);
    put_(reinterpret_cast<const u8*>(&sum), sizeof sum);
  }

 private:
  static constexpr std::size_t pieceBytes = 1 << 20;
  void flush() {
    if (!piece_.empty()) give(piece_.data(), piece_.size());
    piece_.clear();
  }
  void give(const u8* bytes, std::size_t size) {
    XXH3_64bits_update(&sum_, bytes, size);
    put_(bytes, size);
  }
  const std::function<void(const u8*, std::size_t)>& put_;
  alignas(64) XXH3_state_t sum_;
  std::vector<u8> piece_;
};

}  // namespace

void Index::save(std::string_view note, const std::function<void(const u8*, std::size_t)>& put) const {
  SnapshotWriter to(put);
  to.number(snapshotMagic);
  to.number(seed_);
  to.text(note);
  to.number<u64>(media_.size());
  for (const auto& medium : media_) to.text(medium);
  to.number<u64>(spaces_.size());
  for (const Namespace& space : spaces_) {
    for (std::string_view part : {std::string_view(space.tenant), std::string_view(space.model), std::string_view(space.lora), std::string_view(space.salt)}) to.text(part);
    to.number(space.blockSize);
    for (const u32 value : {space.ahead, u32{space.bare}, u32{space.live}}) to.number<u8>(static_cast<u8>(value));
  }
  to.number<u64>(streams_.size());
  for (const Stream& stream : streams_) {
    to.number(stream.subscription);
    to.number(stream.rank);
    to.number(stream.medium);
    to.number<u8>(stream.active);
    to.number(stream.shard);
    to.number<u8>(stream.broken);
    to.number(stream.group);
    to.number<u8>(stream.isUncertain);
    to.number(stream.twin);
    to.text(stream.owner);
    to.text(stream.backend);
  }
  to.number<u64>(subscriptions_.size());
  for (const Subscription& sub : subscriptions_) {
    for (std::string_view part : {std::string_view(sub.instance), std::string_view(sub.tenant), std::string_view(sub.model), std::string_view(sub.lora), std::string_view(sub.salt), std::string_view(sub.key)})
      to.text(part);
    to.number(sub.blockSize);
    to.number(sub.rank);
    to.number(sub.scope);
    for (u8 flag : {static_cast<u8>(sub.kind), static_cast<u8>(sub.active), static_cast<u8>(sub.ownNames), static_cast<u8>(sub.standard), static_cast<u8>(sub.unnumbered), static_cast<u8>(sub.evicted), static_cast<u8>(sub.isEnveloped)}) to.number(flag);
    to.number<u64>(sub.streams.size());
    for (u32 stream : sub.streams) to.number(stream);
    to.number<u64>(sub.spaces.size());
    for (u32 space : sub.spaces) to.number(space);
    to.number<u64>(sub.lastEventId.size());
    for (const auto& [stream, last] : sub.lastEventId) to.number(stream), to.number(last);
    to.number<u64>(sub.unverified.size());
    for (const u64 key : sub.unverified) to.number(key);
    to.number<u64>(sub.seen.size());
    to.raw(sub.seen.data(), sub.seen.size() * sizeof(Subscription::Seen));
    to.number<u8>(sub.countsCopies);
    to.number<u64>(sub.copies.size());
    sub.copies.each([&](u64 key, u32 copies) { to.number(key), to.number(copies); });
    to.number<u64>(sub.groups.size());
    for (const CacheGroup& group : sub.groups) to.number(group.rank), to.number(group.index), to.number(static_cast<u8>(group.kind)), to.number(group.window), to.number(group.otherBlockSize), to.text(group.word);
    to.number<u64>(sub.names.size());
    sub.names.each([&](u64 name, u32 block) { to.number(name), to.number(block); });
    to.text(sub.keyHead);
    to.number<u64>(sub.waiting.size());
    sub.waiting.each([&](u64 key, u32 stream) { to.number(key), to.number(stream); });
    to.number<u64>(sub.chunks.size());
    for (const auto& [name, chunk] : sub.chunks) {
      to.number(name), to.number(chunk.space), to.number<u64>(chunk.sequences.size());
      to.raw(chunk.sequences.data(), chunk.sequences.size() * 8);
    }
    to.number<u64>(sub.park.size());
    for (const ParkedEvent& parked : sub.park) {
      to.number(parked.parent), to.number(parked.stream), to.number(parked.space), to.number<u8>(parked.inheritsSalt), to.number<u8>(parked.sparse);
      to.number<u64>(parked.names.size());
      for (std::size_t i = 0; i < parked.names.size(); ++i) to.number(parked.names[i]), to.number(parked.sparse ? u64{0} : parked.locals[i]), to.number<u8>(parked.gone[i]);
    }
  }
  to.number<u64>(sets_.size());
  for (u32 set = 1; set < sets_.size(); ++set) {
    to.number(sets_[set].space);
    const bool used = sets_.blocksOf(set) != 0;
    to.number<u64>(used ? sets_[set].bits.size() : 0);
    if (used) to.raw(sets_[set].bits.data(), sets_[set].bits.size() * 8);
  }
  to.number<u8>(engineInUse_);
  to.number(arena_.end());
  const u64 count = arena_.end() - BlockArena::pageBlocks;
  to.raw(arena_.holders.data() + BlockArena::pageBlocks, count * 4);
  to.raw(arena_.sequence.data() + BlockArena::pageBlocks, count * 8);
  if (engineInUse_) to.raw(arena_.engine.data() + BlockArena::pageBlocks, count * 8);
  to.end();
}

}  // namespace svc
