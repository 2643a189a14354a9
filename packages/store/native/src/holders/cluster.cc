// Finds clients and segments by id, name and number.
#include "holders/cluster.h"

#include <algorithm>

namespace svc {

u32 Cluster::findClient(const Uuid& id) const {
  const auto found = clientByID_.find(id);
  return found == clientByID_.end() ? 0 : found->second;
}

u32 Cluster::clientOf(const Uuid& id) {
  const auto [found, fresh] = clientByID_.try_emplace(id, 0);
  if (!fresh) return found->second;
  u32 number = 0;
  if (!freeClients_.empty()) {
    number = freeClients_.back();
    freeClients_.pop_back();
  } else if (clients_.size() < mostClients) {
    number = clientEnd();
    clients_.emplace_back();
  } else {
    clientByID_.erase(found);
    return 0;
  }
  clients_[number] = Client{};
  clients_[number].id = id;
  clients_[number].used = true;
  found->second = number;
  return number;
}

void Cluster::restoreClient(u32 number, const Uuid& id) {
  if (number == 0 || number >= mostClients) return;
  while (clientEnd() <= number) {
    clients_.emplace_back();
    if (clientEnd() - 1 != number) freeClients_.push_back(clientEnd() - 1);
  }
  std::erase(freeClients_, number);
  if (clients_[number].used) clientByID_.erase(clients_[number].id);
  const u32 objects = clients_[number].objects;
  clients_[number] = Client{};
  clients_[number].id = id;
  clients_[number].used = true;
  clients_[number].objects = objects;
  clientByID_[id] = number;
}

void Cluster::dropClient(u32 number) {
  clientByID_.erase(clients_[number].id);
  clients_[number] = Client{};
  freeClients_.push_back(number);
}

Segment* Cluster::findSegment(const Uuid& id) {
  const auto found = segmentByID_.find(id);
  return found == segmentByID_.end() ? nullptr : segments_[found->second].get();
}

Segment& Cluster::add(std::unique_ptr<Segment> segment) {
  if (segment->number >= segmentEnd()) segments_.resize(segment->number + 1);
  Segment& added = *segment;
  segments_[added.number] = std::move(segment);
  segmentByID_[added.id] = added.number;
  // Disks are not mounted, copied to or listed by name, except cold ones, from which objects are moved away.
  if (!added.onDisk() || added.cold()) byName_[added.name].push_back(added.number);
  client(added.client).segments.push_back(added.number);
  return added;
}

void Cluster::hide(Segment& segment) {
  segment.gone = true;
  if (const auto found = segmentByID_.find(segment.id); found != segmentByID_.end() && found->second == segment.number) segmentByID_.erase(found);
  if (const auto named = byName_.find(segment.name); named != byName_.end()) {
    std::erase(named->second, segment.number);
    if (named->second.empty()) byName_.erase(named);
  }
  std::erase(client(segment.client).segments, segment.number);
  refresh();
}

void Cluster::handOver(Segment& segment, u32 number, std::string_view name, std::string_view endpoint) {
  std::erase(client(segment.client).segments, segment.number);
  segment.client = number;
  client(number).segments.push_back(segment.number);
  std::vector<u32>& named = byName_[segment.name];
  std::erase(named, segment.number);
  if (named.empty()) byName_.erase(segment.name);
  segment.name = name;
  segment.endpoint = endpoint;
  byName_[segment.name].push_back(segment.number);
}

void Cluster::refresh() {
  for (auto& open : open_) open.clear();
  for (const auto& segment : segments_)
    if (segment && segment->allocatable()) open_[static_cast<u32>(segment->tier)].push_back(segment->number);
}

const std::vector<u32>& Cluster::named(std::string_view name) const {
  static const std::vector<u32> none;
  const auto found = byName_.find(std::string(name));
  return found == byName_.end() ? none : found->second;
}

}  // namespace svc
