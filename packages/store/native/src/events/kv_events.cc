// Event maps in the form of Mooncake's store masters, batches per loop iteration, and the queue that serves as outbox and for replays.
#include "events/kv_events.h"

#include <algorithm>
#include <charconv>

#include "base/msgpack_writer.h"

namespace svc {

namespace {
constexpr u64 unnumbered = ~u64{0};
}

bool hashOfKey(std::string_view key, u64& hash) {
  const bool hex = key.size() > 2 && key[0] == '0' && (key[1] == 'x' || key[1] == 'X');
  const char *from = key.data() + (hex ? 2 : 0), *end = key.data() + key.size();
  const auto [at, wrong] = std::from_chars(from, end, hash, hex ? 16 : 10);
  return wrong == std::errc() && at == end;
}

void KvEvents::configure(const Settings& settings) {
  settings_ = settings;
  const auto kindOf = [&](const char* type, const char* legacyType, bool isStored, u8 medium) {
    Kind kind;
    const auto nils = [](std::string& out, std::initializer_list<const char*> names) {
      for (const char* name : names) {
        msgpack::text(out, name);
        msgpack::nil(out);
      }
    };
    const u16 members = static_cast<u16>(13 + (settings.objectKey ? 1 : 0) + (settings.legacy ? 2 : 0) + (isStored ? 3 + (settings.legacy ? 1 : 0) : 1));
    msgpack::map(kind.head, members);
    msgpack::text(kind.head, "event_id");
    msgpack::text(kind.afterTime, "event_type");
    msgpack::text(kind.afterTime, type);
    if (settings.legacy) {
      msgpack::text(kind.afterTime, "type");
      msgpack::text(kind.afterTime, legacyType);
    }
    nils(kind.afterTime, {"model_name", "block_size", "additional_salt", "lora_name"});
    msgpack::text(kind.afterTime, "tenant_id");
    msgpack::text(kind.afterTenant, "backend_id");
    msgpack::text(kind.afterTenant, settings.backend);
    msgpack::text(kind.afterTenant, "group_id");
    msgpack::text(kind.afterGroup, "medium");
    msgpack::text(kind.afterGroup, medium == cpu ? "cpu" : "disk");
    nils(kind.afterGroup, {"dp_rank"});
    msgpack::text(kind.tail, "base_block_idx");
    if (isStored) {
      msgpack::number(kind.tail, 0);
      nils(kind.tail, {"parent_hash", "token_ids"});
      if (settings.legacy) nils(kind.tail, {"parent_block_hash"});
    } else {
      msgpack::nil(kind.tail);
    }
    return kind;
  };
  for (u8 medium = 0; medium < media; ++medium) {
    stored_[medium] = kindOf("stored", "BlockStored", true, medium);
    removed_[medium] = kindOf("removed", "BlockRemoved", false, medium);
  }
}

bool KvEvents::append(const Object& object, u64 id, u64 unixMs, const Kind& kind, std::string& out) const {
  u64 hash = 0;
  const bool parsed = hashOfKey(object.key, hash);
  if (!parsed && !settings_.objectKey) return false;
  out.append(kind.head);
  if (id == noID) msgpack::nil(out);
  else msgpack::number(out, id);
  msgpack::text(out, "timestamp");
  msgpack::number(out, unixMs);
  out.append(kind.afterTime);
  msgpack::text(out, object.tenantName);
  out.append(kind.afterTenant);
  if (object.group.empty()) msgpack::nil(out);
  else msgpack::text(out, object.group);
  out.append(kind.afterGroup);
  if (settings_.objectKey) {
    msgpack::text(out, "object_key");
    msgpack::text(out, object.key);
  }
  msgpack::text(out, "seq_hashes");
  msgpack::list(out, parsed ? 1 : 0);
  if (parsed) msgpack::number(out, hash);
  if (settings_.legacy) {
    msgpack::text(out, "block_hashes");
    msgpack::list(out, parsed ? 1 : 0);
    if (parsed) msgpack::signedNumber(out, hash);
  }
  out.append(kind.tail);
  return true;
}

bool KvEvents::describe(const Object& object, u64 id, u64 unixMs, std::string& out) const { return append(object, id, unixMs, stored_[object.medium], out); }

u64& KvEvents::idOf(u16 tenant, u8 medium) {
  const u32 stream = u32{tenant} * media + medium;
  if (stream >= ids_.size()) ids_.resize(stream + 1u);
  return ids_[stream].first;
}

void KvEvents::add(const Object& object, u64 unixMs, const Kind& kind) {
  u64 hash = 0;
  if (!hashOfKey(object.key, hash)) ++unparsedKeys;
  u64& id = idOf(object.tenant, object.medium);
  if (!append(object, id, unixMs, kind, open_)) return;
  ++id;
  const u32 stream = u32{object.tenant} * media + object.medium;
  if (!ids_[stream].second) {
    ids_[stream].second = true;
    moved_.push_back(stream);
  }
  openMs_ = unixMs;
  if (++openEvents_ == perBatch || open_.size() > batchBytes) close();
}

std::string KvEvents::payloadOf(u64 unixMs, u32 events, std::string_view maps) {
  std::string payload;
  payload.reserve(maps.size() + 16);
  msgpack::list(payload, 3);
  msgpack::number(payload, unixMs);
  msgpack::list(payload, events);
  payload.append(maps);
  msgpack::number(payload, 0);
  return payload;
}

void KvEvents::close() {
  queue_.push_back({next_++, unnumbered, openEvents_, payloadOf(openMs_, openEvents_, open_)});
  queuedEvents_ += openEvents_;
  queuedBytes_ += queue_.back().payload.size();
  open_.clear();
  openEvents_ = 0;
  // A slow subscriber blocks nothing: the oldest batches are dropped, and their numbers leave a gap.
  while (queue_.size() > 1 && (queuedEvents_ > settings_.queueEvents || queuedBytes_ > queueBytes)) {
    const Batch& oldest = queue_.front();
    if (oldest.sequence >= taken_) droppedEvents += oldest.events;
    queuedEvents_ -= oldest.events;
    queuedBytes_ -= oldest.payload.size();
    queue_.pop_front();
  }
}

void KvEvents::taken(u64 before) {
  for (const Batch& batch : queue_) {
    if (batch.sequence >= before) break;
    if (batch.sequence < taken_) continue;
    ++publishedBatches;
    publishedEvents += batch.events;
  }
  taken_ = std::max(taken_, before);
}

void KvEvents::endIteration(Journal& journal) {
  if (openEvents_ > 0 || greets_) close();
  if (moved_.empty() && !greets_) return;
  greets_ = false;
  journal.published(next_);
  for (const u32 stream : moved_) {
    journal.publishedID(static_cast<u16>(stream / media), static_cast<u8>(stream % media), ids_[stream].first);
    ids_[stream].second = false;
  }
  moved_.clear();
  for (auto batch = queue_.rbegin(); batch != queue_.rend() && batch->lsn == unnumbered; ++batch) batch->lsn = journal.nextLsn - 1;
}

void KvEvents::record(Journal& journal) const {
  if (next_ == 0) return;
  journal.published(next_);
  // A stream that never had an event needs no record.
  for (u32 stream = 0; stream < ids_.size(); ++stream)
    if (stream % media == cpu || ids_[stream].first > 0) journal.publishedID(static_cast<u16>(stream / media), static_cast<u8>(stream % media), ids_[stream].first);
}

}  // namespace svc
